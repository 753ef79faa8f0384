//! Threads that live as long as a measurement, and start each job at the same time.

use std::{
    ops::Range,
    panic,
    sync::{
        Arc, Barrier,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A number of threads, each with its own state that never leaves the thread.
pub(crate) struct Team<J, R>(Vec<Member<J, R>>);

struct Member<J, R> {
    /// Set to `None` when the team ends.
    orders: Option<Sender<(Arc<Barrier>, J)>>,
    answers: Receiver<Option<(Range<Instant>, R)>>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Clone + Send + 'static, R: Send + 'static> Team<J, R> {
    /// Starts the threads: thread `i` runs `work` on the state that `make(i)` returns.
    pub(crate) fn new<T>(
        threads: usize,
        make: impl Fn(usize) -> T + Send + Sync + 'static,
        work: impl Fn(&mut T, J) -> R + Send + Sync + 'static,
    ) -> Self {
        let (make, work) = (Arc::new(make), Arc::new(work));
        let member = |index| {
            let (orders, ordered) = channel::<(Arc<Barrier>, J)>();
            let (answer, answers) = channel();
            let (make, work) = (make.clone(), work.clone());
            let thread = thread::spawn(move || {
                let mut state = make(index);
                let mut done = answer.send(None).is_ok();
                while let (true, Ok((start, job))) = (done, ordered.recv()) {
                    start.wait();
                    let begun = Instant::now();
                    let result = work(&mut state, job);
                    done = answer.send(Some((begun..Instant::now(), result))).is_ok();
                }
            });
            Member { orders: Some(orders), answers, thread: Some(thread) }
        };
        let mut team = Self((0..threads).map(member).collect());
        // Waits for all threads, so that a panic in `make` is reported before others wait at a
        // barrier.
        team.0.iter_mut().for_each(|member| drop(member.answer()));
        team
    }

    /// Runs `job` on the first `threads` threads. Returns the time from the first start to the last
    /// end, and what each thread returned.
    pub(crate) fn run(&mut self, threads: usize, job: J) -> (Duration, Vec<R>) {
        let start = Arc::new(Barrier::new(threads));
        for member in &self.0[..threads] {
            let orders = member.orders.as_ref().expect("taken when the team ends");
            // A thread that is gone is detected when it does not answer.
            let _ = orders.send((start.clone(), job.clone()));
        }
        let answers = self.0[..threads].iter_mut().map(|member| member.answer().expect("an answer to an order"));
        let (times, results): (Vec<_>, Vec<_>) = answers.unzip();
        let begun = times.iter().map(|time| time.start).min();
        let ended = times.iter().map(|time| time.end).max();
        (ended.zip(begun).map_or(Duration::ZERO, |(ended, begun)| ended - begun), results)
    }
}

impl<J, R> Member<J, R> {
    /// The thread's next answer; if the thread has panicked, resumes its panic here.
    fn answer(&mut self) -> Option<(Range<Instant>, R)> {
        self.answers.recv().unwrap_or_else(|_| match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => panic::resume_unwind(panic),
            _ => unreachable!("a thread ends by a panic, or when the team does"),
        })
    }
}

impl<J, R> Drop for Team<J, R> {
    fn drop(&mut self) {
        for member in &mut self.0 {
            member.orders = None;
        }
        for thread in self.0.iter_mut().filter_map(|member| member.thread.take()) {
            // Its panic was already reported by the call that gave it the job.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::Team;

    #[test]
    fn threads_keep_their_state_and_do_what_they_are_told() {
        let mut team = Team::new(
            3,
            |index| 10 * index,
            |state: &mut usize, more: usize| {
                *state += more;
                *state
            },
        );
        assert_eq!(team.run(2, 1).1, [1, 11]);
        assert_eq!(team.run(3, 5).1, [6, 16, 25]);
    }

    #[test]
    fn a_panic_reaches_who_asked() {
        let mut team = Team::new(2, |index| index, |state: &mut usize, ()| assert_eq!(*state, 0, "the second fails"));
        let asked = catch_unwind(AssertUnwindSafe(|| team.run(2, ())));
        assert!(asked.expect_err("a panic").downcast_ref::<String>().expect("its text").contains("the second fails"));
        let made = catch_unwind(|| Team::<(), ()>::new(2, |index| assert_eq!(index, 0), |(), ()| ()));
        assert!(made.is_err());
    }
}
