//! The texts on and beside the boxes of a picture.

use super::icicle::{Icicle, IcicleBox, Shown};

impl Icicle<'_> {
    /// Labels for a box, from the longest to the shortest.
    pub(super) fn labels(&self, shown: &IcicleBox) -> [String; 3] {
        let blocks = grouped(shown.blocks);
        match shown.shown {
            Shown::Run(0) => [
                format!("{} cached of {} tokens each", count(shown.blocks, "block"), self.tree().block_size()),
                count(shown.blocks, "block"),
                blocks,
            ],
            Shown::Run(run) => {
                let (run, size) = (&self.tree().runs()[run], self.tree().block_size());
                let tokens = format!("tokens {}-{}", run.start * size, run.end * size);
                let row = run.row.map_or(String::new(), |row| format!(", row {row}"));
                let leases = leases(shown.leases);
                [format!("{tokens}{row}{leases}"), format!("{}{leases}", count(shown.blocks, "block")), blocks]
            }
            Shown::Group { runs } => {
                let leases = leases(shown.leases);
                let runs = count(runs, "run");
                [format!("{runs}, {}{leases}", count(shown.blocks, "block")), format!("{runs}{leases}"), runs]
            }
        }
    }

    /// The title of the whole picture.
    pub(super) fn title(&self) -> String {
        let tree = self.tree();
        let leases = if tree.leases() == 0 { "no lease".to_owned() } else { count(tree.leases(), "lease") };
        format!("{} in {}, {leases}", count(tree.blocks(), "block"), count(tree.runs().len() - 1, "run"))
    }

    /// A remark on the runs that are drawn in groups; `None` if there are none.
    pub(super) fn remark(&self) -> Option<String> {
        let (grouped, all) = (self.grouped_runs(), self.tree().runs().len() - 1);
        let of = format!("{} of {}", self::grouped(grouped), count(all, "run"));
        let small = count(self.narrowest(), "block");
        (grouped > 0).then(|| format!("{of} are drawn together: smaller than {small}, or too deep"))
    }
}

fn leases(leases: usize) -> String {
    if leases == 0 { String::new() } else { format!(", {}", count(leases, "lease")) }
}

/// A number with its unit, which is singular for one.
pub(super) fn count(number: usize, unit: &str) -> String {
    format!("{} {unit}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A number with its digits in groups of three.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
