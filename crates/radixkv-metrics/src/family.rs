//! Descriptions of metrics that are functions of a statistics snapshot, and their encoding.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// A metric whose value is a function of the statistics `S`.
pub(crate) struct Family<S: 'static, V: 'static> {
    /// The name without `_total`, which the encoder adds to counters.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) values: Values<S, V>,
}

/// The value of a label, and the function that reads its number.
type Labelled<S, V> = (&'static str, fn(&S) -> V);

/// The values of a metric.
pub(crate) enum Values<S: 'static, V: 'static> {
    One(fn(&S) -> V),
    /// A label's name, and a number for each of the label's values.
    By(&'static str, &'static [Labelled<S, V>]),
}

/// Describes a metric with one value.
pub(crate) const fn one<S, V>(name: &'static str, help: &'static str, value: fn(&S) -> V) -> Family<S, V> {
    Family { name, help, values: Values::One(value) }
}

/// Encodes integer counters.
pub(crate) fn encode_counters<S>(
    families: &[Family<S, u64>],
    stats: &S,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    encode(families, MetricType::Counter, stats, encoder, |value, metric| {
        metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
    })
}

/// Encodes integer gauges.
pub(crate) fn encode_gauges<S>(
    families: &[Family<S, u64>],
    stats: &S,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    encode(families, MetricType::Gauge, stats, encoder, |value, metric| metric.encode_gauge(&value))
}

/// Encodes metrics of one kind; `value` encodes a single number.
pub(crate) fn encode<S, V>(
    families: &[Family<S, V>],
    kind: MetricType,
    stats: &S,
    encoder: &mut DescriptorEncoder<'_>,
    value: impl Fn(V, &mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    families.iter().try_for_each(|family| {
        let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
        match family.values {
            Values::One(read) => value(read(stats), &mut metric),
            Values::By(label, parts) => parts
                .iter()
                .try_for_each(|(part, read)| value(read(stats), &mut metric.encode_family(&[(label, *part)])?)),
        }
    })
}
