//! The scoring of a batch on the device: sinks and slopes of all layers, in the units of the
//! kernels.

use super::abi::{NO_WINDOW, ScoringArgs};
use super::device::Device;
use super::error::GpuError;
use super::upload::{ArraySpan, Arrays, Upload};
use radixkv_attention::Scoring;
use std::f32::consts::LOG2_E;

/// The [`Scoring`] of a prepared batch.
#[derive(Debug)]
pub(super) struct DeviceScoring {
    window: Option<u32>,
    soft_cap: Option<f32>,
    sinks: Vec<f32>,
    slopes: Vec<f32>,
    query_heads: usize,
    /// Sinks of all layers and slopes, if there are any.
    arrays: Option<(Arrays, [ArraySpan; 2])>,
}

impl DeviceScoring {
    pub(super) fn new(device: &Device, scoring: &Scoring<'_>, query_heads: usize) -> Result<Self, GpuError> {
        let Scoring { window, soft_cap, sinks, alibi_slopes, .. } = *scoring;
        let in_log2 = |numbers: &[f32]| numbers.iter().map(|number| number * LOG2_E).collect::<Vec<f32>>();
        let arrays = if sinks.is_empty() && alibi_slopes.is_empty() {
            None
        } else {
            let mut upload = Upload::default();
            let spans = [sinks, alibi_slopes].map(|numbers| upload.push(&in_log2(numbers)));
            Some((upload.send(device)?, spans))
        };
        let (sinks, slopes) = (sinks.to_vec(), alibi_slopes.to_vec());
        Ok(Self { window, soft_cap, sinks, slopes, query_heads, arrays })
    }

    /// The arguments of the kernels for one layer.
    pub(super) fn args(&self, layer: usize) -> ScoringArgs {
        let address = |at: usize, first: usize| match &self.arrays {
            Some((arrays, spans)) if spans[at].len > 0 => arrays.address(spans[at]) + (first * size_of::<f32>()) as u64,
            _ => 0,
        };
        ScoringArgs {
            sinks: address(0, layer * self.query_heads),
            slopes: address(1, 0),
            cap: self.soft_cap.map_or(0.0, |cap| cap * LOG2_E),
            cap_rate: self.soft_cap.map_or(0.0, |cap| 2.0 / cap),
            window: self.window.map_or(NO_WINDOW, |window| window.min(NO_WINDOW)),
            pad: 0,
        }
    }

    /// Whether a batch has the same scoring, which is recorded with launches.
    pub(super) fn is(&self, scoring: &Scoring<'_>) -> bool {
        let Scoring { window, soft_cap, sinks, alibi_slopes, .. } = *scoring;
        (self.window, self.soft_cap) == (window, soft_cap) && self.sinks == sinks && self.slopes == alibi_slopes
    }
}
