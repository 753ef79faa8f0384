use prometheus_client::metrics::{counter::Counter, exemplar::CounterWithExemplar, gauge::Gauge, info::Info};
use prometheus_client::registry::Unit;

use super::*;

// Holds: ME2.
#[test]
fn a_scraper_gets_the_format_that_it_prefers() {
    use TextFormat::{OpenMetrics, Prometheus};
    for (accept, format) in [
        ("", Prometheus),
        ("*/*", Prometheus),
        ("text/html,application/xhtml+xml,*/*;q=0.8", Prometheus),
        ("text/plain;version=0.0.4", Prometheus),
        ("application/openmetrics-text", OpenMetrics),
        ("Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8", OpenMetrics),
        ("application/openmetrics-text; version=\"1.0.0\"", OpenMetrics),
        // Prometheus 2.42, and 3.0 with text preferred.
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            OpenMetrics,
        ),
        ("text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1", Prometheus),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.1", Prometheus),
        ("application/openmetrics-text;q=0", Prometheus),
        ("application/openmetrics-text;q=nonsense,,;;=,", Prometheus),
    ] {
        assert_eq!(TextFormat::negotiate(accept), format, "{accept:?}");
    }
}

#[test]
fn help_and_type_have_the_names_of_the_samples() {
    let mut registry = Registry::default();
    registry.register("ends", "Requests that ended", Counter::<u64>::default());
    registry.register("waiting", "Requests that wait", Gauge::<i64>::default());
    registry.register("build", "What was built", Info::new(vec![("version", "1 # \"2\" \\")]));
    registry.register_with_unit("open", "Time", Unit::Seconds, Counter::<u64>::default());
    let traced = CounterWithExemplar::<Vec<(&str, &str)>>::default();
    traced.inc_by(3, Some(vec![("trace", "a # b")]), None);
    registry.register("traced", "Requests with a trace", traced);
    let text = TextFormat::Prometheus.text(&registry);
    let expected = r##"# HELP ends_total Requests that ended.
# TYPE ends_total counter
ends_total 0
# HELP waiting Requests that wait.
# TYPE waiting gauge
waiting 0
# HELP build_info What was built.
# TYPE build_info gauge
build_info{version="1 # \"2\" \\"} 1
# HELP open_seconds_total Time.
# TYPE open_seconds_total counter
open_seconds_total 0
# HELP traced_total Requests with a trace.
# TYPE traced_total counter
traced_total 3
"##;
    assert_eq!(text, expected);
}
