//! Turns among the fences: whose they are, and for how long.

use super::*;

const BOUND: Duration = Duration::from_secs(5);
/// Longer than anything here may last.
const LONG: Duration = Duration::from_secs(3_600);

fn one() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

fn begin(all: &Arc<Semaphore>) -> FenceTurn {
    FenceTurn::begin(Arc::clone(all).try_acquire_owned().unwrap(), BOUND)
}

/// Who waits and keeps up, which takes so long in each round; when it got its permit.
async fn waits(
    all: &Arc<Semaphore>,
    rounds: impl IntoIterator<Item = Duration>,
) -> (OwnedSemaphorePermit, Instant) {
    let mut queue = Queue::join(Arc::clone(all));
    for takes in rounds {
        let round = queue.round(async {
            sleep(takes).await;
            Ok(())
        });
        if let Some(permit) = round.await.unwrap() {
            return (permit, Instant::now());
        }
    }
    panic!("it went through all rounds in vain")
}

/// A fence whose pod is dead stands for as long as that lasts; the moves of others go on.
#[tokio::test(start_paused = true)]
async fn a_fence_that_stands_for_long_holds_up_no_other_move() {
    let all = one();
    let fences = Fences {
        turn: Some(begin(&all)),
        ..Fences::default()
    };
    let begun = Instant::now();
    let next = timeout(LONG, all.acquire()).await;
    assert!(next.is_ok(), "held for ever");
    // Not before the mover had its time to hand over, and to lift the fence.
    assert!(begun.elapsed() >= BOUND * TURN_PAUSES);
    drop(fences);
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_is_open_gives_its_turn_to_the_next_at_once() {
    let all = one();
    let mut fences = Fences {
        turn: Some(begin(&all)),
        ..Fences::default()
    };
    let begun = Instant::now();
    assert!(all.try_acquire().is_err());
    fences.open();
    drop(all.acquire().await.unwrap());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// Who is held up while it keeps up leaves its turn to those who wait behind it, and gets another one.
#[tokio::test(start_paused = true)]
async fn who_cannot_use_a_turn_passes_it_on() {
    let all = one();
    let turn = begin(&all);
    let begun = Instant::now();
    // Held up for a minute in its first round.
    let slow = waits(&all, [Duration::from_secs(60), Duration::ZERO]);
    let other = async {
        // Behind the slow one in the queue.
        sleep(Duration::from_secs(1)).await;
        drop(turn);
        let permit = timeout(LONG, all.acquire()).await.unwrap();
        let at = begun.elapsed();
        drop(permit);
        at
    };
    let (slow, other) = tokio::join!(slow, other);
    assert!(other < Duration::from_secs(2), "{other:?}");
    let (_permit, slow) = slow;
    assert!(slow.duration_since(begun) >= Duration::from_secs(60));
}

/// Who is as good as up to date keeps its turn for that moment.
#[tokio::test(start_paused = true)]
async fn a_turn_that_comes_while_one_keeps_up_is_used() {
    let all = one();
    let turn = begin(&all);
    let begun = Instant::now();
    let kept = waits(&all, [KEEP_UP_EVERY / 2]);
    let opens = async {
        sleep(KEEP_UP_EVERY + KEEP_UP_EVERY / 4).await;
        drop(turn);
    };
    let (kept, ()) = tokio::join!(kept, opens);
    let (_permit, at) = kept;
    assert!(at.duration_since(begun) < KEEP_UP_EVERY * 2);
    assert!(all.try_acquire().is_err());
}

/// Why it missed stays to be read, and nothing in it changes until the next try.
#[test]
fn what_a_missed_fence_says_stands_still_and_keeps_the_reason() {
    let mut fences = Fences::default();
    fences.missed(Duration::from_secs(2), "a writer");
    fences.missed(Duration::from_secs(2), "another writer");
    assert_eq!(fences.missed, 2);
    let text = fences.waits.unwrap();
    let (told, at) = text.split_once(" tried at ").unwrap();
    let expected = "fences that did not hold: 2; the last one: another writer; the next is";
    assert_eq!(told, expected);
    let left = OffsetDateTime::parse(at, &Rfc3339).unwrap() - OffsetDateTime::now_utc();
    assert!((2..=4).contains(&left.whole_seconds()), "{left}");
}

/// What an operator can do about it is told by who was in the way.
#[test]
fn a_hand_over_that_takes_too_long_says_what_it_waited_for() {
    let waited = Waited {
        in_flight: Some(7),
        ended: 1,
        ..Waited::default()
    };
    let (text, home) = (
        "the hand-over took longer than 5000 ms, and was waiting for",
        "the lock of the shop's home at the source (7 writes in flight, 1 session ended)",
    );
    assert_eq!(
        too_long(BOUND, Doing::Fence, waited),
        format!("{text} {home}")
    );
    let compare = "the comparison of the keys that had changed";
    assert_eq!(
        too_long(BOUND, Doing::Compare, waited),
        format!("{text} {compare}")
    );
}
