//! Values of keys, as servers store them.

use super::*;
use crate::mover::table::Kind as Value;

fn column(data_type: &str, kind: Value) -> Column {
    Column {
        name: "c".into(),
        quoted: "`c`".into(),
        kind,
        data_type: data_type.into(),
        charset: None,
        digits: None,
        nullable: false,
        generated: false,
    }
}

fn text(kind: Kind, value: &[u8]) -> String {
    let column = column("text", Value::Text);
    match decode(kind, &column, value).unwrap() {
        KeyPart::Bytes(bytes) => String::from_utf8(bytes).unwrap(),
        other @ (KeyPart::Unsigned(_) | KeyPart::Signed(_)) => format!("{other:?}"),
    }
}

#[test]
fn whole_numbers_keep_their_sign_up_to_the_last() {
    let (unsigned, signed) = (
        column("bigint", Value::Int { unsigned: true }),
        column("bigint", Value::Int { unsigned: false }),
    );
    for size in [1, 2, 3, 4, 8] {
        let all = vec![0xff; size];
        let most = u64::MAX >> (64 - 8 * size);
        let of = |column| decode(Kind::Integer(size), column, &all).unwrap();
        assert_eq!(of(&unsigned), KeyPart::Unsigned(most));
        assert_eq!(of(&signed), KeyPart::Signed(-1));
        let mut lowest = vec![0; size];
        lowest[size - 1] = 0x80;
        let least = -(1_i128 << (8 * size - 1));
        let least = i64::try_from(least).unwrap();
        assert_eq!(
            decode(Kind::Integer(size), &signed, &lowest),
            Ok(KeyPart::Signed(least))
        );
    }
}

#[test]
fn numbers_for_names_and_bits() {
    let any = column("enum", Value::Enum { members: 300 });
    assert_eq!(
        decode(Kind::Enum(2), &any, &[44, 1]),
        Ok(KeyPart::Unsigned(300))
    );
    assert_eq!(
        decode(Kind::Set(8), &any, &[0xff; 8]),
        Ok(KeyPart::Unsigned(u64::MAX))
    );
    assert_eq!(
        decode(Kind::Bit(10), &any, &[2, 1]),
        Ok(KeyPart::Unsigned(0x201))
    );
    assert_eq!(decode(Kind::Year, &any, &[0]), Ok(KeyPart::Unsigned(0)));
    assert_eq!(
        decode(Kind::Year, &any, &[255]),
        Ok(KeyPart::Unsigned(2155))
    );
}

#[test]
fn bytes_of_fixed_length_get_their_zeros_back() {
    let bytes = column("binary", Value::Binary);
    let padded = decode(Kind::Char(4, 1), &bytes, b"AB").unwrap();
    assert_eq!(padded, KeyPart::Bytes(b"AB\0\0".to_vec()));
    let words = column("char", Value::Char);
    let plain = decode(Kind::Char(16, 1), &words, b"AB").unwrap();
    assert_eq!(plain, KeyPart::Bytes(b"AB".to_vec()));
}

/// What the common decoder makes of fractions below zero is another time; here are the server's own words for them.
#[test]
fn times_below_zero() {
    let packed = |clock: i64, part: i64, digits: u8| {
        let bytes = usize::from(digits.div_ceil(2));
        let whole = (clock << (8 * bytes)) + part;
        let stored = whole + (0x80_0000 << (8 * bytes));
        let all = stored.to_be_bytes();
        all[8 - 3 - bytes..].to_vec()
    };
    let clock = |h: i64, m: i64, s: i64| (h << 12) | (m << 6) | s;
    let ten = clock(10, 11, 12);
    assert_eq!(text(Kind::Time(0), &packed(ten, 0, 0)), "10:11:12");
    assert_eq!(text(Kind::Time(0), &packed(-ten, 0, 0)), "-10:11:12");
    assert_eq!(text(Kind::Time(2), &packed(ten, 34, 2)), "10:11:12.34");
    assert_eq!(text(Kind::Time(2), &packed(-ten, -34, 2)), "-10:11:12.34");
    assert_eq!(text(Kind::Time(1), &packed(0, -50, 1)), "-00:00:00.5");
    assert_eq!(text(Kind::Time(3), &packed(ten, 3450, 3)), "10:11:12.345");
    let last = clock(838, 59, 59);
    assert_eq!(
        text(Kind::Time(6), &packed(-last, 0, 6)),
        "-838:59:59.000000"
    );
    assert_eq!(
        text(Kind::Time(6), &packed(-ten, -1, 6)),
        "-10:11:12.000001"
    );
}

#[test]
fn dates_and_instants() {
    assert_eq!(text(Kind::Date, &[0x5d, 0xd1, 0x0f]), "2024-10-29");
    assert_eq!(text(Kind::Date, &[0, 0, 0]), "0000-00-00");
    assert_eq!(text(Kind::Date, &[0x9f, 0x1f, 0x4e]), "9999-12-31");
    let months: u64 = 2024 * 13 + 2;
    let packed = (1 << 39) | (((months << 5) | 29) << 17) | (23 << 12) | (59 << 6) | 58;
    let mut value = packed.to_be_bytes()[3..].to_vec();
    assert_eq!(text(Kind::Datetime(0), &value), "2024-02-29 23:59:58");
    value.extend_from_slice(&[0x01, 0xe2, 0x40]);
    assert_eq!(
        text(Kind::Datetime(6), &value),
        "2024-02-29 23:59:58.123456"
    );
    assert_eq!(
        text(Kind::Datetime(0), &[0x80, 0, 0, 0, 0]),
        "0000-00-00 00:00:00"
    );
    let second = 1_700_000_000_u32.to_be_bytes();
    assert_eq!(text(Kind::Timestamp(0), &second), "2023-11-14 22:13:20");
    let mut value = second.to_vec();
    value.extend_from_slice(&1230_u16.to_be_bytes());
    assert_eq!(text(Kind::Timestamp(3), &value), "2023-11-14 22:13:20.123");
    assert_eq!(text(Kind::Timestamp(2), &[0; 5]), "0000-00-00 00:00:00.00");
    assert!(decode(Kind::Timestamp(0), &column("t", Value::Temporal), &[0]).is_err());
}

#[test]
fn decimals() {
    let kind = |precision, scale| Kind::Decimal { precision, scale };
    // The examples of the server's own sources: 1234567890.1234 as decimal(14,4).
    let plus = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
    let minus = plus.map(|byte| !byte);
    assert_eq!(text(kind(14, 4), &plus), "1234567890.1234");
    assert_eq!(text(kind(14, 4), &minus), "-1234567890.1234");
    assert_eq!(text(kind(1, 0), &[0x80]), "0");
    assert_eq!(text(kind(1, 0), &[0x7f]), "0");
    assert_eq!(text(kind(2, 2), &[0x80 | 5]), "0.05");
    assert_eq!(text(kind(2, 2), &[!(0x80 | 5)]), "-0.05");
    assert_eq!(text(kind(3, 1), &[0x80 | 7, 5]), "7.5");
    let mut bytes = Bytes(&plus);
    assert_eq!(take(kind(14, 4), &mut bytes), Ok(&plus[..]));
    assert!(bytes.is_empty());
}

#[test]
fn each_value_is_as_long_as_its_type_says() {
    let mut bytes = Bytes(&[3, 0, b'a', b'b', b'c', 9]);
    assert_eq!(take(Kind::Varchar(2), &mut bytes), Ok(&b"abc"[..]));
    assert_eq!(take(Kind::Integer(1), &mut bytes), Ok(&[9][..]));
    assert_eq!(take(Kind::Integer(1), &mut bytes), Err(Unreadable::SHORT));
    for (kind, length) in [
        (Kind::Time(6), 6),
        (Kind::Datetime(5), 8),
        (Kind::Timestamp(1), 5),
        (Kind::Bit(64), 8),
        (Kind::Bit(9), 2),
        (
            Kind::Decimal {
                precision: 65,
                scale: 30,
            },
            30,
        ),
        (Kind::Date, 3),
        (Kind::Old(8), 8),
    ] {
        let all = vec![0; length + 1];
        let mut bytes = Bytes(&all);
        assert_eq!(
            take(kind, &mut bytes).map(<[u8]>::len),
            Ok(length),
            "{kind:?}"
        );
        assert_eq!(
            take(kind, &mut Bytes(&all[..length - 1])),
            Err(Unreadable::SHORT)
        );
    }
}
