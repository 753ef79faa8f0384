//! The health of remote tiers: a tier that does not answer is left out for a while, then asked
//! again.

use std::time::{Duration, Instant};

/// Unanswered requests in a row after which a tier is left out.
const MAX_UNANSWERED: u32 = 3;
/// How long a tier is left out the first time. The time doubles whenever it does not answer the
/// request after a pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The health of one tier.
#[derive(Debug)]
pub(super) struct Health {
    /// When the tier last answered.
    heard: Instant,
    unanswered: u32,
    pause: Duration,
    left_out_until: Option<Instant>,
}

impl Health {
    pub(super) fn new(now: Instant) -> Self {
        Self { heard: now, unanswered: 0, pause: FIRST_PAUSE, left_out_until: None }
    }

    /// Whether the tier may be asked. After a pause one request may be made, and then none for
    /// `patience`, unless the tier answers.
    pub(super) fn may_ask(&mut self, now: Instant, patience: Duration) -> bool {
        let may_ask = self.left_out_until.is_none_or(|until| until <= now);
        if may_ask && self.left_out_until.is_some() {
            self.left_out_until = Some(now + patience);
        }
        may_ask
    }

    /// Whether the tier has been silent for `patience` after a request that was made at `since`.
    pub(super) fn is_silent(&self, since: Instant, now: Instant, patience: Duration) -> bool {
        self.heard.max(since) + patience <= now
    }

    pub(super) fn answered(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// Records a request without an answer. Returns whether the tier is now left out because of it.
    pub(super) fn unanswered(&mut self, now: Instant) -> bool {
        // Requests from before the pause tell nothing new.
        if self.left_out_until.is_some_and(|until| now < until) {
            return false;
        }
        self.unanswered += 1;
        if self.unanswered < MAX_UNANSWERED {
            return false;
        }
        self.left_out_until = Some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_unanswered_requests_pause_a_tier_and_an_answer_ends_that() {
        let patience = Duration::from_millis(100);
        let mut now = Instant::now();
        let mut health = Health::new(now);
        assert_eq!([(); 3].map(|()| health.unanswered(now)), [false, false, true]);
        assert!(!health.unanswered(now), "a request from before the pause");
        for pause in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
            assert!(!health.may_ask(now + pause - patience, patience));
            now += pause;
            assert!(health.may_ask(now, patience) && !health.may_ask(now, patience), "one request");
            now += patience;
            assert!(health.unanswered(now));
        }
        now += LONGEST_PAUSE;
        assert!(health.may_ask(now, patience));
        health.answered(now);
        assert!(health.may_ask(now, patience) && health.may_ask(now, patience));
        assert!(!health.is_silent(now, now, patience) && health.is_silent(now, now + patience, patience));
        assert_eq!([(); 3].map(|()| health.unanswered(now)), [false, false, true]);
    }
}
