//! Folders of dumps that are not whole: taken up, gone on with, and what late writers cannot do to them.

use super::*;
use crate::mover::table::KeyPart;

fn form(number: usize, table: &str) -> Form {
    Form {
        table: table.to_owned(),
        file: file_name(number, table),
        schema: "one".to_owned(),
    }
}

fn key(number: u64) -> Key {
    Key([KeyPart::Unsigned(number)].into())
}

fn take_up(dir: &Path, owner: u64) -> Part {
    Part::take_up(dir, "a", owner, Duration::ZERO).unwrap()
}

/// A part of run 1 with one table that is done and three rows of another one.
fn left(dir: &Path) -> (Part, Summed, [Form; 2]) {
    let forms = [form(0, "first"), form(1, "second")];
    let [first, second] = &forms;
    let mut part = take_up(dir, 1);
    part.note_done(first.clone(), 7, "sum".to_owned()).unwrap();
    fs::write(part.folder.join(&first.file), "rows").unwrap();
    let (mut file, begin) = part.open(second).unwrap();
    assert_eq!((begin.rows, begin.after), (0, None));
    file.write_all(b"abc").unwrap();
    file.sync().unwrap();
    part.note_open(second, 3, 3, &key(3)).unwrap();
    (part, file, forms)
}

#[test]
fn a_file_is_named_after_its_table_whatever_that_is_called() {
    assert_eq!(file_name(0, "shop_order"), "000-shop_order.tsv.gz");
    assert_eq!(file_name(12, "a/../b c`é"), "012-a----b-c--.tsv.gz");
}

/// A run goes on with what the newest before it has noted, takes away what older ones left, and leaves a later one's alone.
#[test]
fn a_run_takes_up_what_was_noted_last() {
    let dir = tempfile::tempdir().unwrap();
    let there = |name: &str| dir.path().join(name).is_dir();
    let (mut late, mut its_file, [first, second]) = left(dir.path());
    its_file.write_all(b"not noted").unwrap();
    its_file.sync().unwrap();
    for name in ["a.0.part", "a.2.part", "a.9.part", "a.dump", "ab.1.part"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    fs::write(late.folder.join("002-third.tsv.gz"), "not noted").unwrap();

    let mut next = take_up(dir.path(), 3);
    assert!(!there("a.0.part") && !there("a.1.part") && !there("a.2.part"));
    assert!(there("a.9.part") && there("a.dump") && there("ab.1.part"));
    assert!(!next.folder.join("002-third.tsv.gz").exists());
    assert_eq!(next.done(&first).unwrap().rows, 7);
    assert!(next.done(&second).is_none());
    let (mut file, begin) = next.open(&second).unwrap();
    assert_eq!((begin.rows, begin.after), (3, Some(key(3))));
    // A run that was taken for dead goes on: nothing of it gets into the dump, and it notes nothing.
    its_file.write_all(b"late").unwrap();
    its_file.sync().unwrap();
    assert!(late.note_open(&second, 16, 9, &key(9)).is_err());
    file.write_all(b"def").unwrap();
    file.sync().unwrap();
    let path = next.folder.join(&second.file);
    assert_eq!(fs::read(path).unwrap(), b"abcdef");
    // The same run once more.
    assert_eq!(take_up(dir.path(), 3).done(&first).unwrap().rows, 7);
}

#[test]
fn a_table_that_is_another_one_by_now_is_dumped_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, forms) = left(dir.path());
    let mut part = take_up(dir.path(), 2);
    for it in forms {
        let other = Form {
            schema: "two".to_owned(),
            ..it
        };
        assert!(part.done(&other).is_none());
        let (_, begin) = part.open(&other).unwrap();
        assert_eq!((begin.rows, begin.after), (0, None));
        let path = part.folder.join(&other.file);
        assert_eq!(fs::read(path).unwrap(), b"");
    }
}

/// A file that is shorter than what was noted is of no use.
#[test]
fn a_file_that_lost_its_end_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (part, _, [_, second]) = left(dir.path());
    fs::write(part.folder.join(&second.file), "ab").unwrap();
    let (_, begin) = take_up(dir.path(), 2).open(&second).unwrap();
    assert_eq!((begin.rows, begin.after), (0, None));
}

#[test]
fn what_is_of_no_table_any_more_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (part, _, [first, second]) = left(dir.path());
    let entry = part.done(&first).unwrap().clone();
    part.has_only(&[entry]).unwrap();
    let there = |file: &str| part.folder.join(file).exists();
    assert!(there(&first.file) && there(REACHED) && !there(&second.file));
}
