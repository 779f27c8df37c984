//! Parses Kubernetes quantities (`4Gi`, `1500m`, `1e9`) into integers, with fixed-point arithmetic. Fractions are
//! rounded up, as Kubernetes does.

use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The rule that a text violates so that it is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidQuantity(&'static str);

/// The rule for a text that is not a quantity.
pub(crate) const MUST_BE_QUANTITY: &str = "must be a quantity such as 4Gi or 512Mi";

impl fmt::Display for InvalidQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for InvalidQuantity {}

/// Returns the number of bytes.
pub fn bytes(quantity: &Quantity) -> Result<u64, InvalidQuantity> {
    scaled(quantity, 0)
}

/// Formats a number of bytes in the largest binary unit that needs no fraction.
pub fn binary(bytes: u64) -> String {
    let units = [("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let needs_no_fraction =
        |(_, exponent): &(&str, u32)| bytes > 0 && bytes.trailing_zeros() >= *exponent;
    match units.into_iter().find(needs_no_fraction) {
        Some((unit, exponent)) => format!("{}{unit}", bytes >> exponent),
        None => bytes.to_string(),
    }
}

/// Returns the number of thousandths, the unit of CPUs.
pub fn millis(quantity: &Quantity) -> Result<u64, InvalidQuantity> {
    scaled(quantity, 3)
}

/// Returns the quantity times ten to the power of `shift`.
fn scaled(Quantity(text): &Quantity, shift: i32) -> Result<u64, InvalidQuantity> {
    let malformed = || InvalidQuantity(MUST_BE_QUANTITY);
    let unsigned = match text.as_bytes() {
        [b'-', ..] => return Err(InvalidQuantity("must not be negative")),
        [b'+', ..] => &text[1..],
        _ => text,
    };
    let end = unsigned
        .find(|it: char| !it.is_ascii_digit() && it != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(malformed());
    }
    let unit = unit(suffix).ok_or_else(malformed)?;

    // Leading and trailing zeros do not count as digits, so that they cannot overflow the mantissa.
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let mantissa = digits.trim_end_matches('0');
    if mantissa.is_empty() {
        return Ok(0);
    }
    let zeros = length(digits).saturating_sub(length(mantissa));
    let exponent = unit
        .tens
        .saturating_add(zeros)
        .saturating_sub(length(fraction))
        .saturating_add(shift);
    // Kubernetes' maximum is 2^63-1; a u128 has room for twice as many digits.
    let too_large = || InvalidQuantity("must be at most 2^63-1");
    let too_many_digits = || InvalidQuantity("must have fewer digits");
    let mantissa = mantissa.parse::<u128>().map_err(|_| too_many_digits())?;
    let value = if exponent >= 0 {
        let tens = 10_u128
            .checked_pow(exponent.unsigned_abs())
            .ok_or_else(too_large)?;
        mantissa
            .checked_mul(tens)
            .and_then(|it| it.checked_shl_exact(unit.twos))
            .ok_or_else(too_large)?
    } else {
        let shifted = mantissa
            .checked_shl_exact(unit.twos)
            .ok_or_else(too_many_digits)?;
        // A divisor that overflows leaves less than one, which rounds up to one.
        10_u128
            .checked_pow(exponent.unsigned_abs())
            .map_or(1, |tens| shifted.div_ceil(tens))
    };
    i64::try_from(value)
        .map(i64::unsigned_abs)
        .map_err(|_| too_large())
}

/// The multiplier of a suffix: `10^tens * 2^twos`.
struct Unit {
    tens: i32,
    twos: u32,
}

fn unit(suffix: &str) -> Option<Unit> {
    let tens = |tens| Some(Unit { tens, twos: 0 });
    let twos = |twos| Some(Unit { tens: 0, twos });
    match suffix {
        "n" => tens(-9),
        "u" => tens(-6),
        "m" => tens(-3),
        "" => tens(0),
        "k" => tens(3),
        "M" => tens(6),
        "G" => tens(9),
        "T" => tens(12),
        "P" => tens(15),
        "E" => tens(18),
        "Ki" => twos(10),
        "Mi" => twos(20),
        "Gi" => twos(30),
        "Ti" => twos(40),
        "Pi" => twos(50),
        "Ei" => twos(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            tens(exponent.parse().ok()?)
        }
    }
}

fn length(text: &str) -> i32 {
    i32::try_from(text.len()).unwrap_or(i32::MAX)
}

trait ShiftExact: Sized {
    /// Shifts left. Returns `None` if a bit would be lost.
    fn checked_shl_exact(self, by: u32) -> Option<Self>;
}

impl ShiftExact for u128 {
    fn checked_shl_exact(self, by: u32) -> Option<Self> {
        self.checked_mul(1_u128.checked_shl(by)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_bytes(text: &str) -> Result<u64, String> {
        bytes(&Quantity(text.to_owned())).map_err(|it| it.to_string())
    }

    #[test]
    fn suffixes_are_multipliers() {
        for (text, expected) in [
            ("0", 0),
            ("1", 1),
            ("1k", 1_000),
            ("1M", 1_000_000),
            ("1G", 1_000_000_000),
            ("1T", 1_000_000_000_000),
            ("1P", 1_000_000_000_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1Ki", 1 << 10),
            ("1Mi", 1 << 20),
            ("1Gi", 1 << 30),
            ("1Ti", 1 << 40),
            ("1Pi", 1 << 50),
            ("1Ei", 1 << 60),
            ("4Gi", 4 << 30),
            ("1e3", 1_000),
            ("1E3", 1_000),
            ("1e+3", 1_000),
            ("1000e-3", 1),
            ("+5", 5),
            ("007", 7),
        ] {
            assert_eq!(in_bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn fractions_are_exact_and_round_up() {
        for (text, expected) in [
            ("1.5Gi", 3 << 29),
            (".5Ki", 512),
            ("5.", 5),
            ("0.1", 1),
            ("1m", 1),
            ("1001m", 2),
            ("512m", 1),
            ("1n", 1),
            ("1e-40", 1),
            ("0e40", 0),
            ("0.000000000000000000000000000000000000000001", 1),
            ("1.00000000000000000000000000000000000000000000000000", 1),
        ] {
            assert_eq!(in_bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn cpus_are_converted_to_thousandths() {
        for (text, expected) in [
            ("2", 2_000),
            ("500m", 500),
            ("0.1", 100),
            ("1u", 1),
            ("0", 0),
        ] {
            assert_eq!(millis(&Quantity(text.to_owned())), Ok(expected), "{text}");
        }
    }

    #[test]
    fn the_largest_quantity_is_the_same_as_in_kubernetes() {
        assert_eq!(in_bytes("9223372036854775807"), Ok(i64::MAX.unsigned_abs()));
        for text in ["9223372036854775808", "8Ei", "10E", "1e19", "1e400"] {
            assert!(
                in_bytes(text).unwrap_err().contains("at most 2^63-1"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_that_is_not_a_quantity_is_rejected() {
        for text in [
            "", "Gi", ".", "1..2", "1.2.3", "4 Gi", "4gi", "4GB", "1K", "1e", "1e1.5", "0x10",
            "four", "1Gi2",
        ] {
            assert!(
                in_bytes(text).unwrap_err().contains("must be a quantity"),
                "{text}"
            );
        }
        assert!(in_bytes("-1").unwrap_err().contains("must not be negative"));
    }
}
