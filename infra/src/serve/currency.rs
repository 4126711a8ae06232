//! Currencies that a shop may sell in.

/// The active codes of ISO 4217 for money, sorted; funds, metals, testing codes and units of account are left out.
const CODES: &str = "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD \
    CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD \
    HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD \
    MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR \
    RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS \
    UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG";

/// Whether a text is one of them, in capitals.
pub(super) fn is_currency(text: &str) -> bool {
    text.len() == 3 && CODES.split(' ').any(|code| code == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_compared_whole() {
        let codes: Vec<_> = CODES.split_whitespace().collect();
        assert!(codes.is_sorted() && codes.iter().all(|c| c.len() == 3));
        assert!(is_currency("USD") && is_currency("AED") && is_currency("ZWG"));
        for bad in ["usd", "XXX", "US", "USDX", "AED AFN", "   ", ""] {
            assert!(!is_currency(bad), "{bad:?}");
        }
    }
}
