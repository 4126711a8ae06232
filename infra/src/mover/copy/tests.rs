//! How a copy ends, and what its marks say.

use std::future::{pending, ready};

use super::*;
use crate::mover::table::KeyPart;

fn failed() -> Result<(), MoveError> {
    Err(MoveError::Bound("a loader's reason".into()))
}

fn reason(ended: Result<(), MoveError>) -> String {
    ended.unwrap_err().to_string()
}

#[tokio::test]
async fn a_loader_that_fails_ends_the_copy_at_once() {
    let mut loaders = JoinSet::new();
    loaders.spawn(pending());
    loaders.spawn(async { failed() });
    let ended = tokio::time::timeout(Duration::from_secs(10), both(pending(), loaders));
    assert_eq!(reason(ended.await.unwrap()), "a loader's reason");
}

#[tokio::test]
async fn the_loaders_reason_is_told_and_not_that_nobody_took_the_readers_chunk() {
    let mut loaders = JoinSet::new();
    loaders.spawn(async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        failed()
    });
    let ended = both(ready(Err(MoveError::Stopped)), loaders).await;
    assert_eq!(reason(ended), "a loader's reason");
}

#[tokio::test]
async fn a_copy_ends_with_its_last_loader() {
    for read in [true, false] {
        let reader = async move {
            if read {
                return Ok(());
            }
            Err(MoveError::Bound("the reader's reason".into()))
        };
        let mut loaders = JoinSet::new();
        loaders.spawn(async { Ok(()) });
        loaders.spawn(async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        });
        let ended = both(reader, loaders).await;
        assert_eq!(ended.is_ok(), read);
        if !read {
            assert_eq!(reason(ended), "the reader's reason");
        }
    }
}

#[test]
fn a_stand_is_read_back() {
    let key = Key(Box::new([
        KeyPart::Signed(-5),
        KeyPart::Bytes(vec![0, 255]),
    ]));
    for key in [None, Some(Key(Box::new([]))), Some(key)] {
        let reached = Reached {
            chunk: 3,
            rows: 1_000,
            bytes: 7,
            key,
        };
        assert_eq!(Reached::from_bytes(&reached.to_bytes()), Some(reached));
    }
    assert_eq!(Reached::from_bytes(b"short"), None);
}
