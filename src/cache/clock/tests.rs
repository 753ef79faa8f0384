use super::*;

#[test]
fn a_moment_ago_lies_before_now_and_after_the_beginning() {
    for clock in [Clock::Monotonic, Clock::Logical] {
        let time = Time::new(clock);
        assert_eq!(time.present().before(Duration::from_secs(1 << 40)), None, "{clock:?}");
        time.set(50);
        let (first, then) = (time.now(), Instant::now());
        while then.elapsed() < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        time.set(5_000_050);
        let ago = time.present().before(Duration::from_millis(4)).expect("the cache is older");
        assert!(first < ago && ago < time.now(), "{clock:?}: {first} {ago} {}", time.now());
    }
}
