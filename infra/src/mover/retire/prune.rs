//! Dumps that are there, and whether one has been kept for long enough.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use shared::{Epoch, PodId, ShopId};

/// A dump, whole or not, by its folder's name.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) shop: ShopId,
    pub(crate) pod: PodId,
    /// Of the copy.
    pub(crate) epoch: Epoch,
    written: SystemTime,
}

impl Found {
    fn of(path: PathBuf) -> io::Result<Option<Self>> {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some((shop, pod, epoch)) = name.and_then(parse) else {
            return Ok(None);
        };
        let at = fs::metadata(&path)?;
        Ok(at.is_dir().then_some(Self {
            written: at.modified()?,
            path,
            shop,
            pod,
            epoch,
        }))
    }

    /// Whether it was kept for long enough, after its move had ended. What a source had that came back is dumped later than that.
    pub(crate) fn is_old(&self, ended: Option<SystemTime>, kept: Duration) -> bool {
        let since = ended.map_or(self.written, |at| at.max(self.written));
        // A time that is still to come has no age.
        since.elapsed().is_ok_and(|age| age >= kept)
    }
}

/// All dumps of a folder; whatever else is there is nobody's to take away.
pub(crate) fn found(dir: &Path) -> io::Result<Vec<Found>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        match Found::of(entry?.path()) {
            Ok(found) => all.extend(found),
            // It has just got another name.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// `shop-5-pod-1-epoch-3-strays-1.dump`.
fn parse(name: &str) -> Option<(ShopId, PodId, Epoch)> {
    let words = name
        .strip_suffix(".dump")
        .or_else(|| name.strip_suffix(".part"))?;
    let mut words = words.split(['-', '.']);
    let mut number = |word: &str| {
        (words.next()? == word)
            .then(|| words.next()?.parse::<u64>().ok())
            .flatten()
    };
    let (shop, pod, epoch) = (number("shop")?, number("pod")?, number("epoch")?);
    Some((
        ShopId::new(shop).ok()?,
        PodId::new(pod).ok()?,
        Epoch::try_from(epoch).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_are_told_by_their_names_and_everything_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let dumps = [
            "shop-5-pod-1-epoch-3.dump",
            "shop-5-pod-1-epoch-3-gone.dump",
            "shop-5-pod-1-epoch-3-back.dump",
            "shop-5-pod-1-epoch-3-strays-12.dump",
            "shop-5-pod-1-epoch-3-strays-12.44.part",
            "shop-5-pod-1-epoch-3.7.part",
            "shop-5-pod-1-epoch-3-cleared.dump",
            "shop-5-pod-1-epoch-3-cleared-strays-2.9.part",
        ];
        let others = [
            "shop-5-pod-1.dump",
            "c",
            "shop-5-pod-1-epoch-3",
            "mine.dump",
        ];
        for name in dumps.iter().chain(&others) {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("shop-6-pod-1-epoch-3.dump"), "a file").unwrap();
        let found = found(dir.path()).unwrap();
        let mut names: Vec<_> = found
            .iter()
            .map(|it| it.path.file_name().unwrap().to_str().unwrap())
            .collect();
        names.sort_unstable();
        let mut wanted = dumps.to_vec();
        wanted.sort_unstable();
        assert_eq!(names, wanted);
        for it in &found {
            assert_eq!((it.shop.get(), it.pod.get(), it.epoch.get()), (5, 1, 3));
        }
    }

    /// The clock starts at the end of the move, or of what was left to do of it.
    #[test]
    fn a_dump_is_as_old_as_the_end_of_its_move() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let ago = |n| SystemTime::now() - minutes(n);
        let of = |written| Found {
            path: PathBuf::new(),
            shop: ShopId::new(1).unwrap(),
            pod: PodId::new(1).unwrap(),
            epoch: Epoch::FIRST,
            written,
        };
        let kept = minutes(60);
        for (written, ended, old) in [
            (ago(90), None, true),
            (ago(90), Some(ago(70)), true),
            (ago(90), Some(ago(10)), false),
            (ago(10), Some(ago(90)), false),
            (ago(10), None, false),
        ] {
            assert_eq!(
                of(written).is_old(ended, kept),
                old,
                "{written:?} {ended:?}"
            );
        }
        assert!(of(ago(0)).is_old(Some(ago(0)), Duration::ZERO));
    }
}
