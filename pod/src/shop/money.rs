//! Amounts of money: a decimal with the currency that it is in, exact, bounded, never a float.

use rust_decimal::Decimal;

/// The column is `decimal(19,4)`: 15 digits before the point.
const WHOLE_DIGITS: u32 = 15;

/// More digits than any amount has: refuses a text before it is parsed (sign and point included).
const TEXT_LEN_MAX: usize = 24;

/// An ISO 4217 code: three upper-case letters. Which one a shop sells in is a fact of the shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Currency([u8; 3]);

impl Currency {
    /// Reads a code; `None` for anything that is not three upper-case letters.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let code: [u8; 3] = text.as_bytes().try_into().ok()?;
        code.iter()
            .all(u8::is_ascii_uppercase)
            .then_some(Self(code))
    }

    /// The code.
    pub(crate) fn as_str(&self) -> &str {
        // Three ASCII letters, by construction.
        std::str::from_utf8(&self.0).unwrap_or("XXX")
    }

    /// How many digits after the point the currency has (ISO 4217, list one; four-digit units of account aside).
    pub(crate) fn digits(self) -> u32 {
        match &self.0 {
            b"BIF" | b"CLP" | b"DJF" | b"GNF" | b"ISK" | b"JPY" | b"KMF" | b"KRW" | b"PYG"
            | b"RWF" | b"UGX" | b"UYI" | b"VND" | b"VUV" | b"XAF" | b"XOF" | b"XPF" => 0,
            b"BHD" | b"IQD" | b"JOD" | b"KWD" | b"LYD" | b"OMR" | b"TND" => 3,
            _ => 2,
        }
    }
}

/// Why a text is not an amount. `Display` is a sentence for the client: nothing else reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAmount {
    /// Not digits with at most one point.
    #[error("An amount is a string of digits with a point, such as \"12.50\".")]
    Form,
    /// A finer amount than the currency has.
    #[error("{currency} amounts have at most {digits} digits after the point.", currency = .0.as_str(), digits = .0.digits())]
    TooFine(Currency),
    /// Too much for the column.
    #[error("An amount has at most {WHOLE_DIGITS} digits before the point.")]
    TooLarge,
}

/// Reads an amount of zero or more. Strict: no sign, no exponent, no blanks, no separators, digits on both sides of a
/// point.
pub(crate) fn parse(text: &str, currency: Currency) -> Result<Decimal, BadAmount> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(BadAmount::Form);
    }
    if text.len() > TEXT_LEN_MAX {
        return Err(BadAmount::TooLarge);
    }
    let amount = Decimal::from_str_exact(text).map_err(|_| BadAmount::TooLarge)?;
    if amount.normalize().scale() > currency.digits() {
        return Err(BadAmount::TooFine(currency));
    }
    within(amount).ok_or(BadAmount::TooLarge)
}

/// The sum of price times quantity; `None` when it does not fit the column.
pub(crate) fn total(lines: impl IntoIterator<Item = (Decimal, i32)>) -> Option<Decimal> {
    lines
        .into_iter()
        .try_fold(Decimal::ZERO, |sum, (price, quantity)| {
            within(sum.checked_add(price.checked_mul(quantity.into())?)?)
        })
}

fn within(amount: Decimal) -> Option<Decimal> {
    (amount < Decimal::from(10_u64.pow(WHOLE_DIGITS))).then_some(amount)
}

/// The amount as clients read it: as many digits after the point as the currency has (the database gives four).
pub(crate) fn text(amount: Decimal, currency: Currency) -> String {
    let mut amount = amount.normalize();
    if amount.scale() < currency.digits() {
        amount.rescale(currency.digits());
    }
    amount.to_string()
}

/// The amount as people read it on a page: thousands apart, currency behind.
pub(crate) fn for_people(amount: Decimal, currency: Currency) -> String {
    let plain = text(amount, currency);
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    format!("{grouped} {}", currency.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd() -> Currency {
        Currency::parse("USD").unwrap()
    }

    fn jpy() -> Currency {
        Currency::parse("JPY").unwrap()
    }

    #[test]
    fn amounts_are_strict() {
        for good in [
            "0",
            "12.5",
            "12.50",
            "12.5000",
            "999999999999999.99",
            "007.10",
        ] {
            assert!(parse(good, usd()).is_ok(), "{good}");
        }
        for bad in [
            "", "-1", "+1", "1.", ".5", "1e3", " 1", "1,000", "0x1", "1.2.3", "NaN", "١", "1_0",
        ] {
            assert_eq!(parse(bad, usd()), Err(BadAmount::Form), "{bad:?}");
        }
        assert_eq!(parse("1.005", usd()), Err(BadAmount::TooFine(usd())));
        assert_eq!(parse("1.5", jpy()), Err(BadAmount::TooFine(jpy())));
        assert_eq!(parse("1000000000000000", usd()), Err(BadAmount::TooLarge));
        assert_eq!(parse(&"9".repeat(400), usd()), Err(BadAmount::TooLarge));
        assert_eq!(
            parse("1.000000000000000000000000000001", usd()),
            Err(BadAmount::TooLarge)
        );
    }

    #[test]
    fn a_total_that_does_not_fit_is_none() {
        let price = |text| parse(text, usd()).unwrap();
        assert_eq!(
            total([(price("0.10"), 3), (price("19.99"), 1)]),
            Some(price("20.29"))
        );
        assert_eq!(total([]), Some(Decimal::ZERO));
        assert_eq!(
            total([(price("999999999999999.99"), 1)]),
            Some(price("999999999999999.99"))
        );
        assert_eq!(total([(price("999999999999999.99"), 2)]), None);
        assert_eq!(total(vec![(price("999999999999999"), i32::MAX); 100]), None);
    }

    #[test]
    fn amounts_are_shown_with_the_digits_of_their_currency() {
        let four = |text: &str| Decimal::from_str_exact(text).unwrap();
        assert_eq!(text(four("12.5000"), usd()), "12.50");
        assert_eq!(text(four("0.0000"), usd()), "0.00");
        assert_eq!(text(four("500.0000"), jpy()), "500");
        assert_eq!(for_people(four("1234567.5"), usd()), "1,234,567.50 USD");
        assert_eq!(for_people(four("999"), jpy()), "999 JPY");
    }

    #[test]
    fn a_currency_is_three_capitals() {
        assert_eq!(usd().as_str(), "USD");
        for bad in ["", "usd", "US", "USDX", "U D", "ÜS"] {
            assert_eq!(Currency::parse(bad), None, "{bad}");
        }
    }
}
