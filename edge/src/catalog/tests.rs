//! The follower against a control server that answers by a script.

use std::collections::VecDeque;
use std::net::SocketAddr;

use shared::ShopId;
use shared::config::SecretRef;
use shared::keys::FleetKeys;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::keys::Keys;
use crate::upstream::{PeerSettings, Pods};

/// What the control server says to the next question.
#[derive(Debug, Clone)]
enum Say {
    /// The whole table, to whoever asks for it.
    Table(String),
    /// Changes, to whoever asks for them.
    Changes(String),
    /// 410
    Gone,
    /// The token is wrong.
    Refuse,
    /// Nothing, while a question may wait; then no changes.
    Nothing,
}

/// A control server that has said all it has to say says [`Say::Nothing`].
#[derive(Clone)]
struct Control {
    say: Arc<Mutex<VecDeque<Say>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Control {
    async fn start(say: impl IntoIterator<Item = Say>) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let control = Self {
            say: Arc::new(Mutex::new(say.into_iter().collect())),
            asked: Arc::default(),
        };
        let this = control.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(this.clone().serve(stream));
            }
        });
        (control, address)
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        while stream.read_buf(&mut bytes).await.is_ok_and(|n| n > 0) {
            if !bytes.ends_with(b"\r\n\r\n") {
                continue;
            }
            let head = String::from_utf8(std::mem::take(&mut bytes)).unwrap();
            assert!(head.contains("authorization: Bearer secret\r\n"), "{head}");
            let target = head.split(' ').nth(1).unwrap().to_owned();
            self.asked.lock().push(target.clone());
            let say = self.say.lock().pop_front().unwrap_or(Say::Nothing);
            let (status, body) = match say {
                Say::Table(body) | Say::Changes(body) => (200, body),
                Say::Gone => (410, String::new()),
                Say::Refuse => (401, String::new()),
                Say::Nothing => {
                    if !target.contains("wait_ms=0") {
                        std::future::pending::<()>().await;
                    }
                    let version = target.split("after=").nth(1).unwrap();
                    let version = version.split('&').next().unwrap();
                    (200, changes(version.parse().unwrap(), &[]))
                }
            };
            let answer = format!(
                "HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

fn shop(id: u64, epoch: u64) -> String {
    format!(
        r#"{{"id":{id},"handle":"shop-{id}","hosts":[],"pod":1,"epoch":{epoch},"state":"serving"}}"#
    )
}

fn table(version: u64, shops: &[u64]) -> String {
    let mut text = format!(
        "{{\"incarnation\":1,\"version\":{version},\"base_domain\":\"localhost\",\"platform_domain\":\"localhost\"}}\n\
         {{\"pod\":{{\"id\":1,\"name\":\"one\",\"status\":\"active\",\"http\":[\"127.0.0.1:1\"]}}}}\n"
    );
    for id in shops {
        text.push_str(&format!("{{\"shop\":{}}}\n", shop(*id, 1)));
    }
    text + &format!("{{\"end\":{{\"pods\":1,\"shops\":{}}}}}\n", shops.len())
}

fn changes(version: u64, list: &[(u64, String)]) -> String {
    let list: Vec<String> = list
        .iter()
        .map(|(version, shop)| format!(r#"{{"version":{version},"shop":{shop}}}"#))
        .collect();
    let list = list.join(",");
    format!(r#"{{"incarnation":1,"version":{version},"changes":[{list}]}}"#)
}

struct Rig {
    routes: Arc<Routes>,
    folder: tempfile::TempDir,
}

impl Rig {
    fn start(at: &[SocketAddr]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Secret::read(SecretRef::File(path)).unwrap()
        };
        let second = Duration::from_secs(1);
        let pods = Pods::new(PeerSettings {
            connect: second,
            answer: second,
            write: second,
            idle: second,
            in_flight_max: 1,
        });
        let keys = FleetKeys::generate("k1").unwrap().to_text();
        let keys = Keys::new(secret("key", &keys)).unwrap();
        let max_stale = Duration::from_secs(3600);
        let routes = Arc::new(Routes::new(pods, keys, max_stale));
        let settings = CatalogSettings {
            urls: at.iter().map(|at| format!("http://{at}/")).collect(),
            token: secret("token", "secret"),
            state_file: folder.path().join("routes.bin"),
            max_stale,
        };
        let mut follower = Follower::new(Arc::clone(&routes), settings).unwrap();
        tokio::spawn(async move { follower.run().await });
        Self { routes, folder }
    }

    async fn version(&self, wanted: u64) {
        let reached = async {
            while self.position().is_none_or(|(version, _)| version < wanted) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_secs(5), reached).await;
        assert!(
            reached.is_ok(),
            "version {wanted} is not there: {:?}",
            self.position()
        );
    }

    /// Version and number of shops.
    fn position(&self) -> Option<(u64, usize)> {
        let table = self.routes.table();
        let table = table.as_ref()?;
        Some((table.version(), table.len()))
    }

    fn epoch(&self, shop: u64) -> Option<u64> {
        let table = self.routes.table();
        let placement = table.as_ref()?.lookup_shop(ShopId::new(shop).ok()?)?;
        Some(placement.epoch.get())
    }

    fn kept_aside(&self) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join("routes.refused.ndjson")).ok()
    }
}

#[tokio::test]
async fn a_table_is_taken_and_its_changes_followed() {
    let (control, at) = Control::start([
        Say::Table(table(4, &[1, 2])),
        Say::Changes(changes(6, &[(5, shop(1, 2)), (6, shop(3, 1))])),
    ])
    .await;
    let rig = Rig::start(&[at]);
    rig.version(6).await;
    assert_eq!(rig.position(), Some((6, 3)));
    assert_eq!(rig.epoch(1), Some(2));
    let asked = control.asked.lock().clone();
    assert_eq!(asked[0], "/v1/routes");
    assert!(asked[1].starts_with("/v1/routes/changes?incarnation=1&after=4&wait_ms="));
}

#[tokio::test]
async fn a_question_that_waits_is_asked_again_for_a_request_that_cannot() {
    let (control, at) = Control::start([Say::Table(table(4, &[1]))]).await;
    let rig = Rig::start(&[at]);
    rig.version(4).await;
    assert!(rig.routes.refresh(Duration::from_secs(2)).await);
    assert!(
        control
            .asked
            .lock()
            .iter()
            .any(|q| q.ends_with("wait_ms=0"))
    );
}

#[tokio::test]
async fn changes_that_are_no_longer_kept_or_do_not_fit_lead_to_a_whole_table() {
    let back = changes(5, &[(5, shop(9, 1).replace("\"pod\":1", "\"pod\":7"))]);
    for say in [Say::Gone, Say::Changes(back), Say::Changes("what".into())] {
        let (_control, at) = Control::start([
            Say::Table(table(4, &[1])),
            say,
            Say::Table(table(9, &[1, 2])),
        ])
        .await;
        let rig = Rig::start(&[at]);
        rig.version(9).await;
        assert_eq!(rig.position(), Some((9, 2)));
    }
}

#[tokio::test]
async fn a_table_that_is_cut_shrunk_or_old_is_refused_and_kept_aside() {
    let whole = table(9, &[1, 2, 3, 4]);
    let cut = whole
        .lines()
        .take(4)
        .map(|l| format!("{l}\n"))
        .collect::<String>();
    for bad in [cut, table(10, &[1]), table(3, &[1, 2, 3, 4])] {
        let (_control, at) = Control::start([
            Say::Table(whole.clone()),
            Say::Gone,
            Say::Table(bad.clone()),
        ])
        .await;
        let rig = Rig::start(&[at]);
        rig.version(9).await;
        let kept = async {
            while rig.kept_aside().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), kept)
            .await
            .unwrap();
        assert_eq!(rig.kept_aside(), Some(bad));
        assert_eq!(
            rig.position(),
            Some((9, 4)),
            "the edge goes on with what it had"
        );
    }
}

#[tokio::test]
async fn another_control_server_is_asked_when_one_does_not_answer() {
    let (_refusing, first) = Control::start([Say::Refuse]).await;
    let (_good, second) = Control::start([Say::Table(table(4, &[1]))]).await;
    let dead = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let rig = Rig::start(&[dead, first, second]);
    rig.version(4).await;
}
