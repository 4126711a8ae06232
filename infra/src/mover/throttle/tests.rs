//! How far replicas are behind, and servers that do not answer.

use super::*;

fn set(text: &str) -> GtidSet {
    GtidSet::parse(&format!("bdbea337-ec7c-11f1-86a3-02fc00000001:{text}")).unwrap()
}

#[test]
fn a_replica_is_as_far_behind_as_the_oldest_set_that_it_lacks() {
    let mut samples = Samples::default();
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    for n in 1..=4 {
        samples.add(at(n), set(&format!("1-{n}")));
    }
    let lag = |has: &str| samples.lag(at(5), &set(has)).as_secs();
    assert_eq!((lag("1-4"), lag("1-3"), lag("1-2")), (0, 1, 2));
}

/// An idle primary says the same again and again; that makes nobody fall behind.
#[test]
fn the_same_set_counts_from_the_first_time() {
    let mut samples = Samples::default();
    let start = Instant::now();
    for second in 0..10 {
        samples.add(start + Duration::from_secs(second), set("1-7"));
    }
    assert_eq!(samples.0.len(), 1);
    let now = start + Duration::from_secs(10);
    assert_eq!(samples.lag(now, &set("1-7")), Duration::ZERO);
    assert_eq!(samples.lag(now, &set("1-6")), Duration::from_secs(10));
}

/// A server that takes a connection and says nothing.
fn deaf(port: u16) -> (Job, End) {
    let end = End {
        pod: shared::PodId::new(1).unwrap(),
        primary: Address {
            host: "127.0.0.1".into(),
            port,
        },
        replicas: Vec::new(),
        term: 1,
        user: "nobody".into(),
        password: String::new().into(),
        unknown: None,
        commits: Arc::default(),
    };
    let job = Job {
        id: shared::moves::MoveId::random(),
        owner: 1,
        shop: shared::ShopId::new(1).unwrap(),
        source: end.clone(),
        target: end.clone(),
        source_epoch: shared::Epoch::FIRST,
        target_epoch: shared::Epoch::FIRST.next(),
        back: false,
        observe: Duration::ZERO,
        source_gone: false,
        dir: PathBuf::new(),
        limits: Arc::default(),
        progress: Arc::default(),
        stop: tokio_util::sync::CancellationToken::new(),
    };
    (job, end)
}

/// Its reason of before goes, and it is not asked again at once.
#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_counts_for_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (job, end) = deaf(listener.local_addr().unwrap().port());
    let mut asked = Asked::new(&job, &end, &end.primary);
    let began = Instant::now();
    assert!(asked.look(What::Executed).await.is_none());
    assert!(began.elapsed() <= LOOK_WITHIN + Duration::from_millis(10));
    let began = Instant::now();
    assert!(asked.look(What::Executed).await.is_none());
    assert_eq!(began.elapsed(), Duration::ZERO);

    let looks = Looks::default();
    let slot = Slot::new(&looks);
    slot.say(Some("it was late".into()));
    let samples = Arc::new(Mutex::new(Samples::default()));
    tokio::select! {
        () = watch_replica(asked, samples, slot) => {}
        () = sleep(Duration::from_secs(1)) => {}
    }
    assert_eq!(*looks.lock(), [None]);
}

/// It waits as long as it takes, and tells since when; whoever gives it up, or is told to stop, is held back no more.
#[tokio::test(start_paused = true)]
async fn who_is_held_back_for_hours_goes_on_where_it_was() {
    let (job, _) = deaf(1);
    let throttle = Throttle::of(&job, &[], Disk::Counts);
    let replica = Slot::new(&throttle.looks);
    replica.say(Some("a replica is late".into()));
    let bound = job.limits.throttle_bound;
    let held = || job.progress.held_back.lock().clone();
    for bounds in [1, 20] {
        let mut passing = std::pin::pin!(throttle.pass_gently());
        timeout(bound * bounds, &mut passing).await.unwrap_err();
        let waits = held().unwrap();
        assert_eq!(waits.bounds(bound), u128::from(bounds));
        assert!(waits.told().contains("a replica is late"), "{waits:?}");
    }
    assert!(held().is_none(), "given up");
    let mut passing = std::pin::pin!(throttle.pass());
    timeout(bound * 2, &mut passing).await.unwrap_err();
    // Two that are in the way in turns hold it back for as long as both.
    let other = Slot::new(&throttle.looks);
    other.say(Some("another is late".into()));
    replica.say(None);
    timeout(PASS_EVERY * 2, &mut passing).await.unwrap_err();
    let waits = held().unwrap();
    assert_eq!(
        (waits.bounds(bound), waits.by.as_str()),
        (2, "another is late")
    );
    other.say(None);
    passing.await.unwrap();
    assert!(held().is_none(), "gone on");
    // Who need not wait takes away nobody's reason.
    *job.progress.held_back.lock() = Some(waits);
    throttle.pass().await.unwrap();
    assert!(held().is_some());
    *job.progress.held_back.lock() = None;
    replica.say(Some("again".into()));
    job.stop.cancel();
    let stopped = throttle.pass().await;
    assert!(matches!(stopped, Err(MoveError::Stopped)), "{stopped:?}");
}
