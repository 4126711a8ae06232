//! The configuration file of each kind of unit.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{CONTROL, ConfigFile, Kind, Maker, Seat, UnitPorts, mysql_name, redis_name};
use crate::render::{quoted, render};
use crate::secrets::{self, Account};

/// Of the k-th server: a replica that shares a machine with the primary may take its place as well as any other.
const REPLICA_GROUP: &str = "online";

impl Maker<'_> {
    /// The file, and the part of it that a running process does not take over by itself.
    pub(super) fn file(
        &self,
        seat: &Seat,
        ports: UnitPorts,
    ) -> anyhow::Result<(ConfigFile, String)> {
        let (path, text, restart_on) = match seat.kind {
            // It reads its tokens again on SIGHUP.
            Kind::Control => {
                let with = |tokens| self.control(ports, tokens);
                (
                    self.home.control_config(),
                    with(self.tokens())?,
                    with(String::new())?,
                )
            }
            Kind::Edge => whole(
                self.home.edge(&seat.name).join("edge.toml"),
                self.edge(seat, ports)?,
            ),
            Kind::Pod => whole(self.pod_path(seat)?, self.pod(seat, ports)?),
            Kind::Redis => whole(
                self.redis_folder(seat)?.join("redis.conf"),
                self.redis(seat, ports)?,
            ),
            Kind::Mysql => whole(
                self.mysql_folder(seat)?.join("my.cnf"),
                self.mysql(seat, ports)?,
            ),
        };
        let check = self.check(seat, &path);
        Ok((ConfigFile { path, text, check }, restart_on))
    }

    /// Each program reads the file itself and says everything that is wrong with it. Redis cannot.
    fn check(&self, seat: &Seat, path: &Path) -> Option<Vec<String>> {
        let mut command = self.command(seat, path);
        match seat.kind {
            Kind::Redis => return None,
            Kind::Mysql => command.push("--validate-config".into()),
            Kind::Control | Kind::Edge | Kind::Pod => command.push("--check-config".into()),
        }
        Some(command)
    }

    fn control(&self, ports: UnitPorts, tokens: String) -> anyhow::Result<String> {
        render(
            "control.toml",
            include_str!("../../templates/control.toml"),
            &[
                ("listen", quoted(format!("127.0.0.1:{}", ports.main))),
                ("catalog", path(&self.home.catalog())),
                ("fleet_key_file", path(&self.secret(secrets::FLEET_KEY))),
                ("secrets_dir", path(&self.home.secrets())),
                ("base_domain", quoted(&self.fleet.base_domain)),
                ("platform_domain", quoted(&self.fleet.platform_domain)),
                ("moves", self.fleet.moves.clone()),
                ("tokens", tokens),
            ],
        )
    }

    fn edge(&self, seat: &Seat, ports: UnitPorts) -> anyhow::Result<String> {
        render(
            "edge.toml",
            include_str!("../../templates/edge.toml"),
            &[
                ("listen", quoted(self.edge_listen(ports))),
                ("admin", admin(ports)?),
                ("base_domain", quoted(&self.fleet.base_domain)),
                ("platform_domain", quoted(&self.fleet.platform_domain)),
                ("fleet_key_file", path(&self.secret(secrets::FLEET_KEY))),
                (
                    "state_file",
                    path(&self.home.edge(&seat.name).join("routes.bin")),
                ),
                (
                    "control",
                    quoted(format!("http://{}", self.listen(CONTROL)?)),
                ),
                ("token_file", path(&self.secret(secrets::EDGE_TOKEN))),
            ],
        )
    }

    fn pod(&self, seat: &Seat, ports: UnitPorts) -> anyhow::Result<String> {
        let pod = self.pod_wish(seat)?;
        let server = |k: u16| {
            self.ports_of(&mysql_name(pod.id, k))
                .map(|ports| ports.main)
        };
        let replicas = pod.servers().skip(1).map(|k| {
            anyhow::Ok(format!(
                r#"  {{ host = "127.0.0.1", port = {}, group = "{REPLICA_GROUP}", weight = 1, promotion = "allow" }},"#,
                server(k)?
            ))
        });
        let replicas = replicas.collect::<anyhow::Result<Vec<_>>>()?;
        render(
            "pod.toml",
            include_str!("../../templates/pod.toml"),
            &[
                ("pod", pod.id.to_string()),
                ("name", quoted(&pod.name)),
                ("process", seat.number.to_string()),
                ("processes", pod.processes.to_string()),
                ("listen", quoted(self.listen(&seat.name)?)),
                ("admin", admin(ports)?),
                ("key_file", path(&self.secret(&secrets::pod_key(pod.id)))),
                ("user", quoted(Account::App.user())),
                (
                    "password_file",
                    path(&self.password_file(Account::App, pod.id)),
                ),
                ("monitor_user", quoted(Account::Monitor.user())),
                (
                    "monitor_password_file",
                    path(&self.password_file(Account::Monitor, pod.id)),
                ),
                (
                    "primary",
                    format!(r#"{{ host = "127.0.0.1", port = {} }}"#, server(1)?),
                ),
                ("replicas", replicas.join("\n")),
                (
                    "redis",
                    quoted(format!("redis://{}/", self.listen(&redis_name(pod.id))?)),
                ),
            ],
        )
    }

    fn redis(&self, seat: &Seat, ports: UnitPorts) -> anyhow::Result<String> {
        render(
            "redis.conf",
            include_str!("../../templates/redis.conf"),
            &[
                ("pod", self.pod_wish(seat)?.id.to_string()),
                ("port", ports.main.to_string()),
                ("folder", quoted(self.redis_folder(seat)?.display())),
            ],
        )
    }

    fn mysql(&self, seat: &Seat, ports: UnitPorts) -> anyhow::Result<String> {
        let user = if self.programs.root {
            "# As root, since the fleet runs as root.\nuser = root"
        } else {
            "# As whoever runs the fleet."
        };
        render(
            "my.cnf",
            include_str!("../../templates/my.cnf"),
            &[
                ("pod", self.pod_wish(seat)?.id.to_string()),
                ("server", seat.number.to_string()),
                ("user", user.into()),
                ("folder", self.mysql_folder(seat)?.display().to_string()),
                ("port", ports.main.to_string()),
                ("server_id", seat.number.to_string()),
            ],
        )
    }

    fn pod_path(&self, seat: &Seat) -> anyhow::Result<PathBuf> {
        Ok(self.home.pod_config(self.pod_wish(seat)?.id, seat.number))
    }

    fn redis_folder(&self, seat: &Seat) -> anyhow::Result<PathBuf> {
        Ok(self.home.redis(self.pod_wish(seat)?.id))
    }

    fn mysql_folder(&self, seat: &Seat) -> anyhow::Result<PathBuf> {
        Ok(self.home.mysql(self.pod_wish(seat)?.id, seat.number))
    }
}

/// A process takes nothing over: another text is another process.
fn whole(path: PathBuf, text: String) -> (PathBuf, String, String) {
    (path, text.clone(), text)
}

fn path(path: &Path) -> String {
    quoted(path.display())
}

fn admin(ports: UnitPorts) -> anyhow::Result<String> {
    let port = ports
        .admin
        .context("a unit without a port for health and metrics")?;
    Ok(quoted(format!("127.0.0.1:{port}")))
}

/// The control server's list of tokens: role, name and file of each.
pub(super) fn tokens(tokens: &[(&str, String, PathBuf)]) -> String {
    let tokens: Vec<_> = tokens
        .iter()
        .map(|(role, name, file)| {
            format!(
                "[[tokens]]\nrole = {}\nname = {}\nfile = {}\n",
                quoted(role),
                quoted(name),
                path(file)
            )
        })
        .collect();
    tokens.join("\n").trim_end().to_owned()
}
