//! What a mistyped name may have meant.

/// How many changes of a letter still look like a slip.
const SLIPS_MAX: usize = 2;

/// How many names are worth reading.
const NAMES_MAX: usize = 3;

/// The known names nearest to `wrong`, best first: names a slip or two away, else names that begin like it.
pub fn near<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut scored: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|name| {
            let slips = distance(wrong, name);
            // In a short word two slips are half of it.
            let close = slips <= SLIPS_MAX.min(wrong.chars().count() / 2);
            let begins = wrong.len() >= 2 && (name.starts_with(wrong) || wrong.starts_with(name));
            (close || begins).then_some((if close { slips } else { SLIPS_MAX + 1 }, name))
        })
        .collect();
    scored.sort_unstable();
    scored.dedup();
    scored
        .into_iter()
        .take(NAMES_MAX)
        .map(|(_, name)| name)
        .collect()
}

/// The sentence for it, or nothing: `; did you mean a, b or c?`.
pub fn did_you_mean(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [rest @ .., last] => format!("; did you mean {} or {last}?", rest.join(", ")),
    }
}

/// The number of letters to insert, delete or replace (Levenshtein), two rows at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (row, from) in a.chars().enumerate() {
        let mut diagonal = above[0];
        above[0] = row + 1;
        for (column, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = above[column + 1];
            above[column + 1] = replaced.min(diagonal + 1).min(above[column] + 1);
        }
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_and_beginnings_are_near_and_others_are_not() {
        let known = ["milk", "silk", "mill", "bread", "bread-and-butter", "x"];
        assert_eq!(near("milc", known), ["milk", "mill", "silk"]);
        assert_eq!(near("brea", known), ["bread", "bread-and-butter"]);
        assert_eq!(near("zzzz", known), [""; 0]);
        assert_eq!(near("y", known), [""; 0]);
    }

    #[test]
    fn distances() {
        for (a, b, d) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(distance(a, b), d, "{a} {b}");
        }
    }

    #[test]
    fn sentence() {
        assert_eq!(did_you_mean(&[]), "");
        assert_eq!(did_you_mean(&["a"]), "; did you mean a?");
        assert_eq!(did_you_mean(&["a", "b", "c"]), "; did you mean a, b or c?");
    }
}
