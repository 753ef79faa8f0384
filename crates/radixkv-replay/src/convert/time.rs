//! Parses dates to milliseconds.

const DAY: f64 = 86_400_000.0;
/// The year of the first date in a log without years: a leap year.
const SOME_YEAR: i64 = 2000;

/// Parses `2025-03-03 17:53:04.125` to milliseconds since 1970; the fraction is optional, a `T` may
/// replace the space, and the rest (an offset, taken as zero) is ignored.
pub(super) fn milliseconds(date: &str) -> Option<f64> {
    let (year, rest) = date.split_once('-')?;
    let year: i64 = year.parse().ok()?;
    of_year(year, year % 4 == 0 && (year % 100 != 0 || year % 400 == 0), rest)
}

/// Parses `03-03 17:53:04` of a year to milliseconds since 1970; text after the seconds is ignored.
fn of_year(year: i64, is_leap: bool, date: &str) -> Option<f64> {
    let (day, time) = date.split_once([' ', 'T'])?;
    let (month, day) = day.split_once('-')?;
    let (month, day): (i64, i64) = (month.parse().ok()?, day.parse().ok()?);
    let mut parts = time.splitn(3, ':');
    let (hour, minute): (u32, u32) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let second = parts.next()?;
    let end = second.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(second.len());
    let second: f64 = second[..end].parse().ok()?;
    let last_day = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is_date = (1..=12).contains(&month) && (1..=last_day).contains(&day) && (0..10_000).contains(&year);
    let is_time = hour < 24 && minute < 60 && second < 61.0;
    let minutes = || f64::from(hour * 60 + minute);
    (is_date && is_time).then(|| days(year, month, day) as f64 * DAY + minutes() * 60_000.0 + second * 1e3)
}

/// Days from 1970-01-01 to a date in the Gregorian calendar; the formula counts years from March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

/// The clock of a log whose dates have no year.
#[derive(Debug, Default)]
pub(super) struct Clock {
    years: i64,
    last: Option<f64>,
}

impl Clock {
    /// Parses `03-03 17:53:04` to milliseconds; a date more than 180 days before the last one is in
    /// the next year, and one as long after it in the year before: lines may be out of order.
    pub(super) fn milliseconds(&mut self, date: &str) -> Option<f64> {
        let mut now = of_year(SOME_YEAR + self.years, true, date)?;
        if let Some(last) = self.last {
            let (is_next, is_before) = (now < last - 180.0 * DAY, self.years > 0 && now > last + 180.0 * DAY);
            self.years += i64::from(is_next) - i64::from(is_before);
            now = of_year(SOME_YEAR + self.years, true, date)?;
        }
        self.last = Some(now);
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_milliseconds() {
        assert_eq!(milliseconds("1970-01-01 00:00:00"), Some(0.0));
        assert_eq!(milliseconds("2023-11-16 18:15:46.5"), Some(1_700_158_546_500.0));
        assert_eq!(milliseconds("2024-02-29T00:00:01.25+00:00"), Some(1_709_164_801_250.0));
        for wrong in [
            "",
            "2023",
            "2023-13-01 00:00:00",
            "2023-01-01",
            "2023-01-01 25:00:00",
            "2023-01-01 4294967295:00:00",
            "2023-02-29 00:00:00",
            "1900-02-29 00:00:00",
            "2024-02-30 00:00:00",
            "2023-04-31 00:00:00",
            "2023-01-32 00:00:00",
            "x-01-01 00:00:00",
        ] {
            assert_eq!(milliseconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_new_year_follows_the_old_one() {
        let mut clock = Clock::default();
        let old = clock.milliseconds("12-31 23:59:59").expect("a date");
        assert_eq!(clock.milliseconds("01-01 00:00:00"), Some(old + 1000.0));
        assert_eq!(clock.milliseconds("12-31 23:59:59"), Some(old), "a line that is out of order");
        assert_eq!(clock.milliseconds("01-01 00:00:01"), Some(old + 2000.0));
        // Any year may be a leap year.
        assert!(clock.milliseconds("02-29 00:00:00").is_some() && clock.milliseconds("02-30 00:00:00").is_none());
    }
}
