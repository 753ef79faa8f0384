//! The colour of a last use.

/// The colours from the oldest to the latest use; dark text is readable on each.
const STOPS: [[f64; 3]; 4] =
    [[188.0, 204.0, 228.0], [224.0, 232.0, 240.0], [254.0, 232.0, 160.0], [248.0, 156.0, 104.0]];

/// Red, green and blue for a share of the time: 0 is the oldest use, 1 is now.
pub(super) fn colour(share: f64) -> [u8; 3] {
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let stop = (at as usize).min(STOPS.len() - 2);
    let part = at - stop as f64;
    [0, 1, 2].map(|part_of| {
        let (from, to) = (STOPS[stop][part_of], STOPS[stop + 1][part_of]);
        (from + (to - from) * part).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_stops_have_their_colours() {
        assert_eq!(colour(0.0), [188, 204, 228]);
        assert_eq!(colour(1.0), [248, 156, 104]);
        assert_eq!(colour(2.0 / 3.0), [254, 232, 160]);
    }
}
