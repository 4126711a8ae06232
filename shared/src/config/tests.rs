//! Files with faults, and what is said of them.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn faults<T>(text: &str, read: impl FnOnce(&mut Section<'_>) -> Option<T>) -> Vec<String> {
    let faults = parse(Path::new("f.toml"), text, read).err().unwrap();
    faults.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn three_faults_give_three_lines() {
    let text = "listen = 5\nmax_stale = '1 day'\ncolour = 1\n[mysql]\nport = 70000\n";
    let read = |s: &mut Section<'_>| {
        let listen: Option<SocketAddr> = s.required("listen");
        let stale = s.or("max_stale", Duration::ZERO);
        let port: Option<u16> = s.section("mysql", |s| s.required("port"));
        Some((listen?, stale, port?))
    };
    assert_eq!(
        faults(text, read),
        [
            r#"f.toml: listen: 5 is not an IP address with a port ("127.0.0.1:8080")"#,
            r#"f.toml: max_stale: "1 day" is not a duration ("250ms", "2s", "5m", "24h", "7d")"#,
            "f.toml: mysql.port: 70000 is not a whole number from 0 to 65535",
            "f.toml: colour: unknown key; known here: listen, max_stale, mysql",
        ]
    );
}

#[test]
fn a_missing_table_still_names_its_missing_keys() {
    let read = |s: &mut Section<'_>| s.section("mysql", |s| s.required::<String>("user"));
    assert_eq!(
        faults("", read),
        ["f.toml: mysql.user: missing; it is a text that is not empty"]
    );
    assert_eq!(
        faults("mysql = 1\n", read)[0],
        "f.toml: mysql: 1 is not a table"
    );
}

#[test]
fn lists_and_tables_in_lists_name_the_element() {
    let text = "to = ['1.2.3.4:5', 'x', 7]\n[[pod]]\nname = 'a'\n[[pod]]\nnome = 'b'\n";
    let read = |s: &mut Section<'_>| {
        let to = s.list::<SocketAddr>("to");
        let pods = s.sections("pod", |s| s.required::<String>("name"));
        Some((to?, pods?))
    };
    let lines = faults(text, read);
    let starts = [
        "f.toml: to[1]: \"x\" is not",
        "f.toml: to[2]: 7 is not",
        "f.toml: pod[1].name: missing",
        "f.toml: pod[1].nome: unknown key",
    ];
    assert_eq!(lines.len(), starts.len());
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn broken_toml_names_the_place_and_repeats_nothing() {
    let lines = faults("a = 1\npassword = hunter2\n", |s| s.required::<u8>("a"));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("f.toml: line 2, column"), "{lines:?}");
    assert!(!lines[0].contains("hunter2"), "{lines:?}");
}

#[test]
fn a_missing_file_is_a_fault_of_the_file() {
    let error = load(Path::new("/nowhere/f.toml"), |_| Some(())).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/f.toml: cannot be read")
    );
}

#[test]
fn secrets_are_read_from_files_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.toml");
    std::fs::write(folder.path().join("pw"), "hunter2\n").unwrap();
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    let read = |text: &str| parse(&path, text, |s| s.secret("password"));
    let command = format!("password = 'command:cat {}/pw'", folder.path().display());
    for text in ["password_file = 'pw'", "password = 'file:pw'", &command] {
        let secret = read(text).unwrap();
        assert_eq!(secret.expose(), "hunter2");
        assert!(!format!("{secret:?}").contains("hunter2"));
        assert_eq!(secret.reread().unwrap().expose(), "hunter2");
    }
    for (text, part) in [
        ("", "password: missing"),
        ("password = 'hunter2'", "password: not a reference"),
        (
            "password_file = 'nowhere'",
            "password_file: cannot read the secret file",
        ),
        ("password_file = 'empty'", "is empty"),
        (
            "password = 'env:PODHOST_NO_SUCH_VARIABLE'",
            "PODHOST_NO_SUCH_VARIABLE is not set",
        ),
        ("password = 'command:false'", "ended with exit status: 1"),
        ("password = 'command:true'", "printed nothing"),
        ("password = 'command:/no/such/program'", "No such file"),
        (
            "password = 'command:cat /dev/zero'",
            "more than 65536 bytes",
        ),
        ("password = 'command: '", "not a reference"),
        (
            "password = 'file:pw'\npassword_file = 'pw'",
            "one of the two is enough",
        ),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn endpoints_are_text_or_table() {
    let read = |text: &str| {
        parse(Path::new("f"), text, |s| s.required::<Endpoint>("at")).map(|e| e.to_string())
    };
    for good in ["at = 'db:3306'", "at = { host = 'db', port = 3306 }"] {
        assert_eq!(read(good).unwrap(), "db:3306");
    }
    assert_eq!(read("at = '[::1]:3306'").unwrap(), "[::1]:3306");
    for bad in [
        "at = 'db'",
        "at = ':1'",
        "at = 'db:0'",
        "at = 'u@db:1'",
        "at = '::1:5'",
        "at = { host = 'db' }",
        "at = { host = 'db', port = 1, x = 1 }",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn durations_are_read_back(ms in 0..10_000_000_000_u64) {
        let duration = Duration::from_millis(ms);
        prop_assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
    }

    #[test]
    fn sizes_are_read_back(bytes in 0..usize::MAX / 2) {
        let size = Size::bytes(bytes);
        prop_assert_eq!(size.to_string().parse(), Ok(size));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        let _ = parse(Path::new("f"), &text, |s| s.required::<Size>("a"));
        let _ = parse_duration(&text);
        let _ = text.parse::<Size>();
        let _ = text.parse::<SecretRef>();
    }
}
