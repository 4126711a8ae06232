//! Hash proposes, the record decides: where the shops of each bucket go, and where one new shop goes.

use std::collections::BTreeMap;

use shared::{PodId, ShopId};
use sqlx::SqliteConnection;

use super::pods::{PodRow, pod_of, select_pod};
use super::{Catalog, CatalogError, pod_id, signed};
use crate::api::{BucketShare, PodStatus};
use crate::output::{count, the_pod};

/// Fixed for ever: a bucket is a shop's id modulo this.
pub const BUCKETS: u64 = 1024;

/// What the choice of a pod looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    id: PodId,
    name: String,
    region: String,
    active: bool,
    room: u64,
    shops: u64,
}

impl Catalog {
    /// How the buckets are shared out.
    pub async fn bucket_shares(&self) -> Result<Vec<BucketShare>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let rows: Vec<(Option<i64>, i64, i64)> = sqlx::query_as(
            "select pod, cast(sum(live) as bigint), cast(sum(planned) as bigint) from ( \
             select live_pod as pod, count(*) as live, 0 as planned from bucket_placement group by live_pod \
             union all select coalesce(planned_pod, live_pod), 0, count(*) from bucket_placement \
             group by coalesce(planned_pod, live_pod)) counts group by pod order by pod",
        )
        .fetch_all(&mut *conn)
        .await?;
        // Never more than 1024.
        let count = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
        rows.into_iter()
            .map(|(pod, live, planned)| {
                let pod = pod.map(pod_id).transpose()?;
                Ok(BucketShare {
                    pod,
                    live: count(live),
                    planned: count(planned),
                })
            })
            .collect()
    }
}

/// Gives a new pod its fair share of the buckets, taken from those that have the most. Only new shops are touched by it:
/// each shop that exists has a placement of its own.
pub(super) async fn share_out(conn: &mut SqliteConnection, new: PodId) -> Result<(), CatalogError> {
    let rows: Vec<(i64, Option<i64>)> =
        sqlx::query_as("select bucket, live_pod from bucket_placement order by bucket")
            .fetch_all(&mut *conn)
            .await?;
    for bucket in taken_over(&rows, i64::from(new.get())) {
        sqlx::query("update bucket_placement set live_pod = $1 where bucket = $2")
            .bind(i64::from(new.get()))
            .bind(bucket)
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
}

/// The buckets that the new pod takes over. Pure. Shops are numbered one after the other, so a pod's buckets lie apart: of
/// a row of new shops each pod gets its share.
fn taken_over(buckets: &[(i64, Option<i64>)], new: i64) -> Vec<i64> {
    let mut by_pod: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let mut taken = Vec::new();
    for (bucket, pod) in buckets {
        match pod {
            Some(pod) if *pod != new => by_pod.entry(*pod).or_default().push(*bucket),
            Some(_) | None => taken.push(*bucket),
        }
    }
    for list in by_pod.values_mut() {
        // By the lowest bits first: those that go, from the end, are spread over what the pod has.
        list.sort_by_key(|bucket| bucket.reverse_bits().cast_unsigned());
    }
    let fair = buckets.len() / (by_pod.len() + 1);
    while taken.len() < fair {
        let richest = by_pod.values_mut().max_by_key(|list| list.len());
        match richest.and_then(Vec::pop) {
            Some(bucket) => taken.push(bucket),
            None => break,
        }
    }
    taken
}

/// The pod of a new shop. A wish is honoured or refused; without one it is the bucket's pod if that fits, else the
/// emptiest that fits. Shops are counted only of the pods that are looked at.
pub(super) async fn propose(
    conn: &mut SqliteConnection,
    shop: ShopId,
    region: Option<&str>,
    wish: Option<&str>,
) -> Result<PodId, CatalogError> {
    if let Some(wish) = wish {
        let named = candidates(conn, Some(wish)).await?;
        return choose(&named, None, region, Some(wish));
    }
    let bucket = signed(shop.get() % BUCKETS);
    let live: Option<i64> =
        sqlx::query_scalar("select live_pod from bucket_placement where bucket = $1")
            .bind(bucket)
            .fetch_one(&mut *conn)
            .await?;
    let live = live.map(pod_id).transpose()?;
    if let Some(pod) = live {
        let own = candidates(conn, Some(&pod.to_string())).await?;
        if let Ok(pod) = choose(&own, live, region, None) {
            return Ok(pod);
        }
    }
    choose(&candidates(conn, None).await?, live, region, None)
}

/// The pods, or the one of an id or a name.
async fn candidates(
    conn: &mut SqliteConnection,
    only: Option<&str>,
) -> Result<Vec<Candidate>, CatalogError> {
    let rows: Vec<PodRow> = sqlx::query_as(select_pod!(
        "where $1 is null or d.name = $1 or cast(d.id as text) = $1 order by d.id"
    ))
    .bind(only)
    .fetch_all(conn)
    .await?;
    let candidate = |row| {
        let pod = pod_of(row)?;
        Ok(Candidate {
            id: pod.id,
            name: pod.name,
            region: pod.region,
            active: pod.status == PodStatus::Active,
            room: pod.max_shops.saturating_sub(pod.shops),
            shops: pod.shops,
        })
    };
    rows.into_iter().map(candidate).collect()
}

/// The choice itself. Pure.
fn choose(
    candidates: &[Candidate],
    bucket: Option<PodId>,
    region: Option<&str>,
    wish: Option<&str>,
) -> Result<PodId, CatalogError> {
    let misfit = |c: &Candidate| -> Option<String> {
        if !c.active {
            Some(format!(
                "{} takes no new shops (drained or offline)",
                the_pod(&c.name)
            ))
        } else if c.room == 0 {
            Some(format!(
                "{} is full with {}",
                the_pod(&c.name),
                count(c.shops, "shop")
            ))
        } else if region.is_some_and(|r| r != c.region) {
            Some(format!("{} is in region {}", the_pod(&c.name), c.region))
        } else {
            None
        }
    };
    let way_out = "add a pod (`podctl pod add`), raise `max_shops`, or name another pod";
    if let Some(wish) = wish {
        let named = |c: &&Candidate| c.name == wish || c.id.to_string() == wish;
        let Some(pod) = candidates.iter().find(named) else {
            return Err(CatalogError::invalid(
                "pod",
                format!("there is no pod {wish:?}"),
            ));
        };
        return match misfit(pod) {
            Some(reason) => Err(CatalogError::Conflict(format!("{reason}; {way_out}"))),
            None => Ok(pod.id),
        };
    }
    let fits: Vec<&Candidate> = candidates.iter().filter(|c| misfit(c).is_none()).collect();
    if let Some(pod) = fits.iter().find(|c| Some(c.id) == bucket) {
        return Ok(pod.id);
    }
    // The emptiest; of equals the first by id.
    match fits.iter().min_by_key(|c| (c.shops, c.id)) {
        Some(pod) => Ok(pod.id),
        None if candidates.is_empty() => Err(CatalogError::Conflict(
            "there is no pod yet; add one (`podctl pod add`)".into(),
        )),
        None => {
            let reasons: Vec<String> = candidates.iter().filter_map(misfit).collect();
            Err(CatalogError::Conflict(format!(
                "no pod can take the shop: {}; {way_out}",
                reasons.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn candidate(id: u64, region: &str, active: bool, room: u64, shops: u64) -> Candidate {
        Candidate {
            id: PodId::new(id).unwrap(),
            name: format!("pod-{id}"),
            region: region.into(),
            active,
            room,
            shops,
        }
    }

    fn pod(id: u64) -> PodId {
        PodId::new(id).unwrap()
    }

    #[test]
    fn the_buckets_pod_is_taken_if_it_fits_else_the_emptiest() {
        let pods = [
            candidate(1, "eu", true, 5, 9),
            candidate(2, "eu", true, 5, 3),
            candidate(3, "us", true, 5, 0),
        ];
        assert_eq!(choose(&pods, Some(pod(1)), None, None).unwrap(), pod(1));
        assert_eq!(
            choose(&pods, Some(pod(3)), Some("eu"), None).unwrap(),
            pod(2)
        );
        assert_eq!(choose(&pods, None, None, None).unwrap(), pod(3));
        assert_eq!(
            choose(&pods, Some(pod(1)), None, Some("3")).unwrap(),
            pod(3)
        );
        assert_eq!(
            choose(&pods, Some(pod(1)), None, Some("pod-2")).unwrap(),
            pod(2)
        );
    }

    #[test]
    fn a_shop_that_fits_nowhere_is_told_why_and_what_to_do() {
        let pods = [
            candidate(1, "eu", false, 5, 0),
            candidate(2, "eu", true, 0, 7),
        ];
        let text = choose(&pods, Some(pod(1)), None, None)
            .unwrap_err()
            .to_string();
        assert!(text.contains("pod-1 takes no new shops") && text.contains("pod-2 is full with 7"));
        assert!(text.contains("podctl pod add"), "{text}");
        let wished = choose(&pods, None, None, Some("pod-2")).unwrap_err();
        assert!(matches!(wished, CatalogError::Conflict(_)));
        assert_eq!(
            choose(&pods, None, None, Some("x")).unwrap_err().field(),
            Some("pod")
        );
    }

    #[test]
    fn a_new_pod_takes_its_share_from_the_richest() {
        let mut buckets: Vec<(i64, Option<i64>)> = (0..1024).map(|b| (b, None)).collect();
        for new in 1..=4 {
            for bucket in taken_over(&buckets, new) {
                buckets[usize::try_from(bucket).unwrap()].1 = Some(new);
            }
            let counts: Vec<usize> = (1..=new)
                .map(|p| buckets.iter().filter(|b| b.1 == Some(p)).count())
                .collect();
            let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(max - min <= 2, "{counts:?}");
            let first = buckets.iter().take(8 * usize::try_from(new).unwrap());
            let owners: BTreeSet<i64> = first.filter_map(|b| b.1).collect();
            assert_eq!(owners, (1..=new).collect(), "the first shops lie apart");
        }
        assert!(
            taken_over(&buckets, 4).len() == 256,
            "run again, it keeps what it has"
        );
    }
}
