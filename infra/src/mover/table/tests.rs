//! Statements about tables, without a server.

use shared::ShopId;

use super::*;

fn column(name: &str, kind: Kind, charset: Option<&str>) -> Column {
    let (name, quoted) = named(name);
    Column {
        name,
        quoted,
        kind,
        data_type: "a type".into(),
        charset: charset.map(str::to_owned),
        digits: None,
        nullable: true,
        generated: false,
    }
}

fn table(columns: Vec<Column>, falling: &[usize], key: usize) -> Table {
    let (name, quoted) = named("t");
    Table {
        name,
        quoted,
        key: (0..key).collect(),
        falling: (0..key).map(|at| falling.contains(&at)).collect(),
        columns,
        row_bytes: 1,
        shape: Shape::default(),
    }
}

fn shop() -> ShopId {
    ShopId::new(7).unwrap()
}

fn shop_column() -> Column {
    column("shop_id", Kind::Int { unsigned: true }, None)
}

fn key(parts: &[KeyPart]) -> Key {
    Key(parts.to_vec().into())
}

/// A range is written so that the server can look it up in the key, in the key's own order.
#[test]
fn pages_follow_the_key_part_by_part() {
    let int = Kind::Int { unsigned: false };
    let columns = vec![
        shop_column(),
        column("a", int, None),
        column("b", Kind::Text, Some("latin1")),
    ];
    let at = key(&[KeyPart::Signed(-5), KeyPart::Bytes(vec![0xFF])]);
    let rising = table(columns.clone(), &[], 3);
    assert_eq!(rising.order_by(), "`shop_id`, `a`, `b`");
    assert_eq!(
        rising.key_range(shop(), Some(&at), None),
        "shop_id = 7 and (`a` > -5 or (`a` = -5 and `b` > _latin1 x'FF'))"
    );
    assert_eq!(
        rising.key_range(shop(), None, Some(&at)),
        "shop_id = 7 and (`a` < -5 or (`a` = -5 and (`b` < _latin1 x'FF' or `b` = _latin1 x'FF')))"
    );
    let mixed = table(columns, &[1], 3);
    assert_eq!(mixed.order_by(), "`shop_id`, `a` desc, `b`");
    assert_eq!(
        mixed.key_range(shop(), Some(&at), None),
        "shop_id = 7 and (`a` < -5 or (`a` = -5 and `b` > _latin1 x'FF'))"
    );
}

/// An ENUM stands in the key by number and compares by text.
#[test]
fn an_enum_is_paged_by_number() {
    let columns = vec![
        shop_column(),
        column("e", Kind::Enum { members: 3 }, None),
        column("k", Kind::Bit, None),
    ];
    let table = table(columns, &[], 3);
    let range = |number, bits| {
        let at = key(&[KeyPart::Unsigned(number), KeyPart::Unsigned(bits)]);
        table.key_range(shop(), Some(&at), None)
    };
    assert_eq!(
        range(0, 9),
        "shop_id = 7 and (`e` in (1,2,3) or (`e` = 0 and `k` > 9))"
    );
    assert_eq!(
        range(3, u64::MAX),
        "shop_id = 7 and (false or (`e` = 3 and `k` > 18446744073709551615))"
    );
    let keys = [key(&[KeyPart::Unsigned(2), KeyPart::Unsigned(1)])];
    assert_eq!(
        table.keys_in(shop(), &keys),
        "shop_id = 7 and ((`e` = 2 and `k` = 1))"
    );
}

/// No statement without the shop, and no key means no row.
#[test]
fn keys_are_looked_up_within_the_shop() {
    let one = table(vec![shop_column()], &[], 1);
    assert_eq!(one.keys_in(shop(), &[key(&[])]), "shop_id = 7");
    assert_eq!(one.keys_in(shop(), &[]), "shop_id = 7 and false");
    assert_eq!(
        one.key_range(shop(), Some(&key(&[])), None),
        "shop_id = 7 and false"
    );
    let columns = vec![shop_column(), column("id", Kind::Binary, None)];
    let two = table(columns, &[], 2);
    let keys = [1_u8, 2].map(|n| key(&[KeyPart::Bytes(vec![n, b'\''])]));
    assert_eq!(
        two.keys_in(shop(), &keys),
        "shop_id = 7 and `id` in (x'0127',x'0227')"
    );
}

/// What a time or a number would be, were it not one, is sent as bytes.
#[test]
fn text_of_a_number_or_a_time_cannot_end_its_place() {
    let columns = vec![
        shop_column(),
        column("d", Kind::Decimal, None),
        column("t", Kind::Temporal, None),
    ];
    let table = table(columns, &[], 3);
    let predicate = |d: &str, t: &str| {
        let keys = [key(&[KeyPart::Bytes(d.into()), KeyPart::Bytes(t.into())])];
        table.keys_in(shop(), &keys)
    };
    assert_eq!(
        predicate("-1.50", "-00:00:00.500000"),
        "shop_id = 7 and ((`d` = -1.50 and `t` = '-00:00:00.500000'))"
    );
    assert_eq!(
        predicate("1 or 1", "' or '"),
        "shop_id = 7 and ((`d` = x'31206F722031' and `t` = x'27206F722027'))"
    );
}

#[test]
fn a_key_is_read_back_from_its_bytes() {
    for parts in [
        vec![],
        vec![KeyPart::Unsigned(u64::MAX), KeyPart::Signed(i64::MIN)],
        vec![KeyPart::Bytes(vec![]), KeyPart::Bytes(vec![0; 300])],
    ] {
        let key = Key(parts.into());
        assert_eq!(Key::from_bytes(&key.to_bytes()), Ok(key));
    }
    for bad in [&b"x"[..], b"u123", b"b\0\0\0\0\0\0\0\x05abc"] {
        assert!(Key::from_bytes(bad).is_err(), "{bad:?}");
    }
}

/// What is not its text travels in another form, and what is computed does not travel.
#[test]
fn rows_are_loaded_as_they_were_read() {
    let mut fixed = column("f", Kind::Float, None);
    fixed.digits = Some((5, 2));
    let mut computed = column("g", Kind::Text, Some("utf8mb4"));
    computed.generated = true;
    let columns = vec![
        shop_column(),
        fixed,
        column("e", Kind::Enum { members: 2 }, None),
        computed,
        column("j", Kind::Json, None),
    ];
    let table = table(columns, &[], 1);
    assert_eq!(
        table.select_list(),
        "`shop_id`, least(greatest(cast(`f` as double), -0999.990e0), 0999.990e0), cast(`e` as unsigned), `j`"
    );
    assert_eq!(
        table.load_statement(),
        "load data local infile 'rows' replace into table `t` character set binary fields terminated by '\\t' \
         escaped by '\\\\' lines terminated by '\\n' (`shop_id`, `f`, @v2, @v3) set `e` = cast(@v2 as unsigned), \
         `j` = convert(@v3 using utf8mb4)"
    );
}
