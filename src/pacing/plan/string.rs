//! Two stairs, and the string between them.

/// What can be done and what must be done, in seconds from now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stairs {
    jobs: Vec<Job>,
    /// Where the stairs have a step, ascending: what must be done by then, and the most that can have been done before.
    steps: Vec<Step>,
    due: f64,
    total: f64,
}

/// A piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// When it can be begun.
    pub(crate) release: f64,
    /// When it must be done.
    pub(crate) deadline: f64,
    pub(crate) work: f64,
    /// By when it was promised, in time of the clock: less than its deadline if that cannot be met.
    pub(crate) promised: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    at: f64,
    least: f64,
    most: f64,
}

impl Stairs {
    pub(crate) fn add(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// To be called once everything is added.
    pub(crate) fn sort(&mut self) {
        self.jobs.sort_by(|a, b| a.deadline.total_cmp(&b.deadline));
        let releases = self.releases();
        let mut at: Vec<f64> =
            self.jobs.iter().flat_map(|job| [job.release, job.deadline]).filter(|at| *at > 0.0).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        let (mut most, mut least) = (0.0, 0.0);
        let (mut begun, mut ended) = (releases.iter().peekable(), self.jobs.iter().peekable());
        while let Some((_, work)) = begun.next_if(|(release, _)| *release <= 0.0) {
            most += work;
        }
        self.due = most;
        self.steps.clear();
        for at in at {
            while let Some((_, work)) = begun.next_if(|(release, _)| *release < at) {
                most += work;
            }
            while let Some(job) = ended.next_if(|job| job.deadline <= at) {
                least += job.work;
            }
            // Sums in another order differ in the last digits.
            self.steps.push(Step { at, least: f64::min(least, most), most });
        }
        self.total = least;
    }

    fn releases(&self) -> Vec<(f64, f64)> {
        let mut releases: Vec<(f64, f64)> = self.jobs.iter().map(|job| (job.release, job.work)).collect();
        releases.sort_by(|a, b| a.0.total_cmp(&b.0));
        releases
    }

    /// What can be begun now.
    pub(crate) fn due(&self) -> f64 {
        self.due
    }

    /// The string, as the end and the slope of each part.
    pub(crate) fn taut(&self) -> Vec<(f64, f64)> {
        let (mut parts, mut from, mut next) = (Vec::new(), (0.0, 0.0), 0);
        while next < self.steps.len() && from.1 < self.total * (1.0 - 1e-12) {
            let (step, touches, slope) = self.straight(from, next);
            let at = self.steps[step].at;
            parts.push((at, slope));
            from = (at, touches);
            next = step + 1;
        }
        parts
    }

    /// The longest straight line from here, given as the step where it ends, its height there, and its slope.
    fn straight(&self, from: (f64, f64), next: usize) -> (usize, f64, f64) {
        let (mut low, mut high) = ((0.0, next), (f64::INFINITY, next));
        for (index, step) in self.steps.iter().enumerate().skip(next) {
            let run = step.at - from.0;
            let (least, most) = ((step.least - from.1).max(0.0) / run, (step.most - from.1).max(0.0) / run);
            if least > high.0 {
                return (high.1, self.steps[high.1].most, high.0);
            }
            if most < low.0 {
                return (low.1, self.steps[low.1].least, low.0);
            }
            if least >= low.0 {
                low = (least, index);
            }
            if most <= high.0 {
                high = (most, index);
            }
        }
        // Nothing in the way: no more than the deadlines demand.
        (low.1, self.steps[low.1].least.max(from.1), low.0)
    }

    /// The highest slope that cannot be avoided: of the string, or where work with a short time comes in between.
    pub(crate) fn peak(&self) -> f64 {
        let string = self.taut().iter().fold(0.0_f64, |peak, (_, slope)| peak.max(*slope));
        string.max(self.dense())
    }

    /// The most work for its time of what is released and ends within a stretch, if it does not end in the order of its release.
    fn dense(&self) -> f64 {
        let mut by_release = self.jobs.clone();
        by_release.sort_by(|a, b| a.release.total_cmp(&b.release).then(a.deadline.total_cmp(&b.deadline)));
        let overtakes = |pair: &[Job]| pair[1].deadline < pair[0].deadline;
        if !by_release.windows(2).any(overtakes) {
            return 0.0;
        }
        let mut releases: Vec<f64> = by_release.iter().map(|job| job.release).collect();
        releases.dedup();
        let mut dense = 0.0_f64;
        for release in releases {
            let mut work = 0.0;
            for job in self.jobs.iter().filter(|job| job.release >= release) {
                work += job.work;
                dense = dense.max(work / (job.deadline - release));
            }
        }
        dense
    }

    /// Each job, in the order of their deadlines, and when it would be done at this rate, with nothing done after what has a
    /// later deadline.
    pub(crate) fn completions(&self, rate: f64) -> Vec<(Job, f64)> {
        // When so much can be done: points of a line that rises at the rate, and is level while there is nothing to do.
        let (mut at, mut done, mut points) = (0.0_f64, 0.0, Vec::new());
        for (release, work) in self.releases() {
            at = at.max(release);
            points.push((done, at));
            done += work;
            at += work / rate;
        }
        let mut sum = 0.0;
        let end = |job: &Job| {
            sum += job.work;
            let index = points.partition_point(|(done, _)| *done < sum * (1.0 - 1e-12)).max(1) - 1;
            let (done, at) = points[index];
            (*job, at + (sum - done).max(0.0) / rate)
        };
        self.jobs.iter().map(end).collect()
    }
}
