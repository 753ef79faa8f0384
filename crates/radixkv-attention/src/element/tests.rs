use super::*;

/// The value by definition, in `f64`.
fn f16_value(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[test]
fn every_f16_is_read_as_defined_and_written_back() {
    for bits in 0..=u16::MAX {
        let (read, defined) = (from_f16(bits), f16_value(bits));
        if defined.is_nan() {
            assert!(read.is_nan() && from_f16(to_f16(read)).is_nan(), "{bits:#x}");
        } else {
            assert_eq!(f64::from(read), defined, "{bits:#x}");
            assert_eq!(to_f16(read), bits);
        }
    }
}

/// Between each two neighbours: below the middle, at it, above it.
// Holds: AT12.
#[test]
fn rounding_goes_to_the_nearest_and_ties_to_even() {
    let check = |bits: u16, read: fn(u16) -> f32, write: fn(f32) -> u16| {
        let middle = ((f64::from(read(bits)) + f64::from(read(bits + 1))) / 2.0) as f32;
        assert_eq!(write(middle.next_down()), bits);
        assert_eq!(write(middle.next_up()), bits + 1);
        assert_eq!(write(middle), bits + (bits & 1), "{bits:#x}");
        assert_eq!(write(-middle), 0x8000 | (bits + (bits & 1)));
    };
    (0..0x7bff).for_each(|bits| check(bits, from_f16, to_f16));
    // From the first normal on: the middle of two subnormals is not an `f32`.
    (0x80..0x7f7f).for_each(|bits| check(bits, from_bf16, to_bf16));
    assert_eq!((to_f16(65_519.996), to_f16(65_520.0), to_f16(f32::INFINITY)), (0x7bff, 0x7c00, 0x7c00));
    assert_eq!((to_bf16(f32::MAX), to_bf16(f32::INFINITY)), (0x7f80, 0x7f80));
    assert!(from_bf16(to_bf16(f32::from_bits(0x7f80_0001))).is_nan());
}

#[test]
fn bits_of_every_type_are_read_back() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8, Dtype::E4m3] {
        for value in [0.0, -1.5, 0.1, 3e38, f32::INFINITY] {
            assert_eq!(from_bits(dtype, to_bits(dtype, value)), round(dtype, value), "{dtype}");
        }
    }
}

/// The value by definition, in `f64`.
fn e4m3_value(bits: u8) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-9),
        15 if fraction == 7.0 => f64::NAN,
        _ => (8.0 + fraction) * 2_f64.powi(exponent - 10),
    };
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

#[test]
fn every_e4m3_is_read_as_defined_and_written_back() {
    for bits in 0..=u8::MAX {
        let (read, defined) = (from_e4m3(bits), e4m3_value(bits));
        assert_eq!(read.is_nan(), defined.is_nan(), "{bits:#x}");
        assert!(read.is_nan() || f64::from(read) == defined, "{bits:#x}: {read}, {defined}");
        assert_eq!(to_e4m3(read), bits);
    }
    // Between each two neighbours, 448 being the last one: below the middle, at it, above it.
    for bits in 0..0x7e {
        let middle = ((e4m3_value(bits) + e4m3_value(bits + 1)) / 2.0) as f32;
        let near = [middle.next_down(), middle, middle.next_up()].map(to_e4m3);
        assert_eq!(near, [bits, bits + (bits & 1), bits + 1], "{bits:#x}");
        assert_eq!(to_e4m3(-middle), 0x80 | near[1]);
    }
    assert_eq!([448.1, 1e9, f32::INFINITY, f32::NEG_INFINITY].map(to_e4m3), [0x7e, 0x7e, 0x7e, 0xfe]);
}

#[test]
fn e4m3_is_within_a_sixteenth_and_what_is_no_number_shows() {
    let dice = &mut fastrand::Rng::with_seed(2);
    for _ in 0..1000 {
        let row: Vec<f32> = (0..8).map(|_| (dice.f32() - 0.5) * 10_f32.powi(dice.i32(-6..6))).collect();
        let mut bits = [0; 8];
        let scale = quantize_e4m3(&row, &mut bits);
        for (value, bits) in row.iter().zip(bits) {
            let off = (value - from_e4m3(bits) * scale).abs();
            assert!(off <= (value.abs() / 16.0).max(scale / 1024.0) * 1.000_001, "{row:?}");
        }
    }
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut bits = [0; 3];
        let scale = quantize_e4m3(&[1.0, special, 0.0], &mut bits);
        assert!(bits.iter().all(|bits| (from_e4m3(*bits) * scale).is_nan()), "{special}");
    }
    for end in [f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, 0.0] {
        let mut bits = [0; 2];
        let scale = quantize_e4m3(&[end, 0.0], &mut bits);
        assert!(bits.iter().all(|bits| (from_e4m3(*bits) * scale).is_finite()), "{end}");
    }
}

// Holds: AT6.
#[test]
fn integers_are_within_half_a_scale_and_what_is_no_number_shows() {
    let dice = &mut fastrand::Rng::with_seed(1);
    for _ in 0..1000 {
        let row: Vec<f32> = (0..8).map(|_| (dice.f32() - 0.5) * 10_f32.powi(dice.i32(-6..6))).collect();
        let mut integers = [0; 8];
        let scale = quantize(&row, &mut integers);
        let off = |(value, integer): (&f32, &i8)| (value - f32::from(*integer) * scale).abs();
        assert!(row.iter().zip(&integers).map(off).all(|off| off <= scale * 0.500_001), "{row:?}");
    }
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in 0..3 {
            let (mut row, mut integers) = ([1.0, 0.0, -2.0], [0; 3]);
            row[at] = special;
            let scale = quantize(&row, &mut integers);
            assert!(integers.iter().all(|integer| (f32::from(*integer) * scale).is_nan()), "{row:?}");
        }
    }
    assert_eq!(quantize(&[0.0; 4], &mut [1; 4]), 0.0);
    // The ends of the range are read back as numbers.
    for end in [f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45] {
        let mut integers = [0; 2];
        let scale = quantize(&[end, 0.0], &mut integers);
        assert!(integers.iter().all(|integer| (f32::from(*integer) * scale).is_finite()), "{end}");
    }
}
