//! Pods are apart by who holds whose keys, and shops by the keys of every table.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tests::own_pod::OwnPod;
use tests::suite::Test;
use tests::{Fleet, Server, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![shares:
        inv7_every_tenant_table_is_keyed_by_shop_first,
        inv7_an_account_of_one_pod_is_refused_by_another,
        inv7_a_pod_holds_no_secret_of_another,
        inv7_a_pod_refuses_the_database_of_another,
    ]
}

/// Asked of the servers themselves: every table but the named local ones has `shop_id` as the first column of its
/// primary key and of each unique key, and no trigger or cascading foreign key writes rows unseen.
async fn inv7_every_tenant_table_is_keyed_by_shop_first(fleet: &Fleet) -> Result<()> {
    for pod in [1, 2] {
        let primary = fleet.primary(pod).await?;
        let local: BTreeSet<&str> = migrations::POD_TABLES_LOCAL.iter().copied().collect();
        let tables = primary
            .texts(
                "select table_name from information_schema.tables where table_schema = database()",
            )
            .await?;
        let tenant: BTreeSet<String> = tables
            .into_iter()
            .filter(|t| !local.contains(t.as_str()))
            .collect();
        ensure!(tenant.len() >= 10, "tenant tables: {tenant:?}");
        let keys = primary
            .texts(
                "select concat(table_name, ' ', index_name, ' ', column_name) from information_schema.statistics \
                 where table_schema = database() and non_unique = 0 and seq_in_index = 1",
            )
            .await?;
        let mut with_primary = BTreeSet::new();
        for key in &keys {
            let words: Vec<&str> = key.split(' ').collect();
            let [table, index, column] = words[..] else {
                anyhow::bail!("a key of four words: {key}")
            };
            if tenant.contains(table) {
                ensure!(
                    column == "shop_id",
                    "key {index} of {table} begins with {column}"
                );
                if index == "PRIMARY" {
                    with_primary.insert(table.to_owned());
                }
            }
        }
        assert_eq!(with_primary, tenant, "tables without a primary key");
        let unseen =
            "select count(*) from information_schema.triggers where trigger_schema = database()";
        assert_eq!(primary.number(unseen).await?, 0, "triggers");
    }
    Ok(())
}

/// Pod 1's accounts, tried on every server of pod 2 with the passwords of pod 1: access denied, every one.
async fn inv7_an_account_of_one_pod_is_refused_by_another(fleet: &Fleet) -> Result<()> {
    let status = fleet.status().await?;
    let (one, two) = (status.pod(1)?, status.pod(2)?);
    for account in ["app", "monitor", "repl", "operator"] {
        let user = format!("podhost_{account}");
        let file = fleet.home().join(format!("secrets/pod-1-mysql-{user}"));
        let file = if file.exists() {
            file
        } else {
            fleet.home().join(format!("secrets/pod-1-mysql-{account}"))
        };
        let password = tests::mysql::secret(&file)?;
        let primary = &one.mysql.primary;
        let at_home = Server::account("127.0.0.1", primary.port, &user, &password, "");
        at_home
            .connect_without_database()
            .await
            .with_context(|| format!("{user} at its own pod"))?;
        for server in two.mysql.servers() {
            let there = Server::account("127.0.0.1", server.port, &user, &password, "");
            let refused = there.connect_without_database().await;
            let text = format!(
                "{:#}",
                refused.err().context("pod 2 let an account of pod 1 in")?
            );
            ensure!(
                text.contains("1045") || text.contains("Access denied"),
                "{text}"
            );
        }
    }
    Ok(())
}

/// The config and the environment of each pod process name no secret of another pod and not the fleet's key, and the
/// files with secrets are for their owner alone.
async fn inv7_a_pod_holds_no_secret_of_another(fleet: &Fleet) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    for (pod, other) in [(1, 2), (2, 1)] {
        for n in [1, 2] {
            let file = fleet.home().join(format!("pod-{pod}/pod-{n}.toml"));
            let config = std::fs::read_to_string(&file)
                .with_context(|| format!("read {}", file.display()))?;
            let process = fleet.unit(&format!("pod-{pod}-{n}"))?;
            let environment =
                std::fs::read(format!("/proc/{}/environ", process.pid())).context("environ")?;
            for text in [config, String::from_utf8_lossy(&environment).into_owned()] {
                ensure!(
                    !text.contains(&format!("pod-{other}-")),
                    "pod {pod} names a secret of pod {other}"
                );
                ensure!(
                    !text.contains("fleet-key"),
                    "pod {pod} names the fleet's key"
                );
                ensure!(
                    !text.contains("podhost_operator"),
                    "pod {pod} names the operator's account"
                );
            }
        }
    }
    for entry in std::fs::read_dir(fleet.home().join("secrets"))
        .context("the secrets")?
        .flatten()
    {
        let mode = entry
            .metadata()
            .context("the mode of a secret")?
            .permissions()
            .mode()
            & 0o777;
        ensure!(
            mode == 0o600,
            "{} has mode {mode:o}",
            entry.path().display()
        );
    }
    // The catalog refers to secrets and holds none.
    let catalog =
        std::fs::read(fleet.home().join("control/catalog.sqlite")).context("the catalog")?;
    let secret = tests::mysql::secret(Path::new(
        &fleet.status().await?.pod(1)?.mysql.password_file,
    ))?;
    ensure!(
        !contains(&catalog, secret.as_bytes()),
        "the catalog holds a password"
    );
    let operator = tests::mysql::secret(&fleet.home().join("secrets/operator-token"))?;
    ensure!(
        !contains(&catalog, operator.as_bytes()),
        "the catalog holds a token"
    );
    Ok(())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A pod process whose config names pod 2 and the servers of pod 1 does not start, and says which is which.
async fn inv7_a_pod_refuses_the_database_of_another(fleet: &Fleet) -> Result<()> {
    let pod_1 = fleet.shop(1).await?.pod;
    let started = OwnPod::start(fleet, pod_1, |config| {
        config.insert("pod".into(), toml::Value::Integer(2));
    })
    .await;
    let said = format!(
        "{:#}",
        started
            .err()
            .context("it started on another pod's database")?
    );
    ensure!(
        said.contains("pod 1") && said.contains("pod 2"),
        "which pod is which is not said: {said}"
    );
    Ok(())
}
