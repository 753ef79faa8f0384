//! Checks the texts of an SVG picture: no two overlap, and none leaves the picture.

/// An upper bound for the mean width of a text's letters in a sans-serif font, as a part of its
/// size.
const LETTER: f64 = 0.6;

/// A text, with its left, top, right and bottom.
struct Place {
    text: String,
    corners: [f64; 4],
}

/// Panics if two texts overlap or one leaves the picture.
pub fn check(svg: &str) {
    let places: Vec<Place> = svg.split("<text ").skip(1).map(place).collect();
    let size = ["width=\"", "height=\""].map(|name| number(svg, name));
    for (at, one) in places.iter().enumerate() {
        let [left, top, right, bottom] = one.corners;
        assert!(left >= 0.0 && top >= 0.0 && right <= size[0] && bottom <= size[1], "{} leaves {size:?}", one.text);
        for other in &places[at + 1..] {
            let [x, y, to_x, to_y] = other.corners;
            let apart = right <= x || to_x <= left || bottom <= y || to_y <= top;
            assert!(apart, "{:?} lies on {:?}: {:?}, {:?}", one.text, other.text, one.corners, other.corners);
        }
    }
    assert!(!places.is_empty());
}

fn place(element: &str) -> Place {
    let (attributes, rest) = element.split_once('>').expect("a text");
    let text = rest.split_once("</text>").expect("an end").0.trim().replace("&lt;", "<").replace("&amp;", "&");
    assert!(!attributes.contains("transform"), "turned texts are not measured: {attributes}");
    let (x, y) = (number(attributes, "x=\""), number(attributes, "y=\""));
    // Pixels of the browser; the picture states the size in other units that have the same length.
    let font = number(attributes, "font-size=\"");
    let width = text.chars().count() as f64 * font * LETTER;
    let left = match value(attributes, "text-anchor=\"") {
        "end" => x - width,
        "middle" => x - width / 2.0,
        _ => x,
    };
    let middle = match value(attributes, "dy=\"") {
        "0.76em" => y + font * 0.5,
        "0.5ex" => y,
        _ => y - font * 0.5,
    };
    Place { text, corners: [left, middle - font / 2.0, left + width, middle + font / 2.0] }
}

fn value<'a>(attributes: &'a str, name: &str) -> &'a str {
    attributes.split_once(name).map_or("", |(_, rest)| rest.split('"').next().unwrap_or(""))
}

fn number(attributes: &str, name: &str) -> f64 {
    value(attributes, name).parse().unwrap_or_else(|_| panic!("{name} of {attributes:.200}"))
}
