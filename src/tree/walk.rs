//! The walk: compares tokens along runs, from a point up to the first token that differs.
//!
//! Match, peek and insert all use it. Its result holds nothing and proves nothing; only a lease
//! does (lease.rs).

use crate::block::BlockLayout;
use crate::key::{Token, common_prefix};
use crate::reclaim::{Guard, Ref};

use super::point::Point;
use super::run::Run;

/// Where a walk stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reached<'g> {
    /// The run that has the last agreeing token, or the run on which the walk started.
    pub(crate) run: Ref<'g, Run>,
    /// Depth on that run.
    pub(crate) depth: u32,
    /// Number of tokens that agree, counted from the root of the namespace.
    pub(crate) end: usize,
}

/// Walks from `from` as far as `tokens` agree. The tokens up to `from` are the first `from.end()`
/// of `tokens`.
pub(crate) fn walk<'g>(from: Ref<'g, Point>, tokens: &[Token], guard: &'g Guard<'_>) -> Reached<'g> {
    let mut run = from.run();
    let mut depth = from.depth();
    let mut end = from.end();
    let mut point = Some(from);
    loop {
        // A run that was reached without a lease may be shorter than `depth` by now.
        let rest = if run.is_trunk() { &[] } else { run.tokens(guard).get(depth as usize..).unwrap_or(&[]) };
        let agreed = if rest.is_empty() { 0 } else { common_prefix(rest, &tokens[end..]) };
        if agreed > 0 {
            depth += agreed as u32;
            end += agreed;
            point = None;
        }
        let Some(&next) = tokens.get(end) else { break };
        let Some(at) = point.or_else(|| run.as_ref().points.get(depth, guard)) else {
            break;
        };
        let Some(child) = at.as_ref().children.get(next, guard) else {
            break;
        };
        // A dead run counts as absent.
        if child.word().len() == 0 {
            break;
        }
        child.prefetch();
        (run, depth, point) = (child, 0, None);
    }
    Reached { run, depth, end }
}

impl<'g> Reached<'g> {
    /// The deepest block boundary at or before the end, on the run that has it.
    pub(crate) fn boundary(self, layout: BlockLayout) -> Position<'g> {
        position(self.run, layout.boundary(self.end))
    }
}

/// A depth on a run at which there may be a point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position<'g> {
    pub(crate) run: Ref<'g, Run>,
    pub(crate) depth: u32,
}

/// The position `end` tokens from the root, on `run` or the ancestor that has it.
pub(crate) fn position(mut run: Ref<'_, Run>, end: usize) -> Position<'_> {
    while end <= run.start() {
        let Some(parent) = run.parent() else { break };
        run = parent.run();
    }
    Position { run, depth: (end - run.start()) as u32 }
}

impl<'g> Position<'g> {
    pub(crate) fn end(self) -> usize {
        self.run.start() + self.depth as usize
    }
}
