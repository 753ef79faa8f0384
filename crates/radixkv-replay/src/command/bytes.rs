//! Parses and formats numbers of bytes.

use std::str::FromStr;

/// The units, and the number of bytes of each.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1000),
    ("B", 1),
];

/// A number of bytes: `80GiB`, `1.5TB`, `4096`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const WANTED: &str = "not a number of bytes, such as 80GiB, 500MB or 4096";
        let unit = UNITS.iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)));
        let (number, unit) = unit.unwrap_or((text, 1));
        let number: f64 = number.trim_end().parse().map_err(|_| WANTED)?;
        let bytes = number * unit as f64;
        // About 2^63: far more than any memory, and below it `f64` is exact enough.
        if (0.0..9.2e18).contains(&bytes) { Ok(Self(bytes.round() as u64)) } else { Err(WANTED) }
    }
}

/// Formats bytes in the largest binary unit that does not exceed them.
pub(crate) fn shown(bytes: u64) -> String {
    let unit = UNITS.iter().take(4).find(|(_, unit)| bytes >= *unit);
    match unit {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        let bytes = |text: &str| text.parse().map(|Bytes(bytes)| bytes);
        assert_eq!(bytes("80GiB"), Ok(80 << 30));
        assert_eq!(bytes("1.5 KiB"), Ok(1536));
        assert_eq!((bytes("60GB"), bytes("7"), bytes("0")), (Ok(60_000_000_000), Ok(7), Ok(0)));
        for wrong in ["", "GiB", "-1GiB", "80G", "eighty", "1e30", "NaN", "80 gib"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!((shown(80 << 30).as_str(), shown(1536).as_str(), shown(7).as_str()), ("80.0 GiB", "1.5 KiB", "7 B"));
    }
}
