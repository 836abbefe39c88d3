//! Reads a project repeatedly, each time only what has changed.
//!
//! | part | is read again when this has changed |
//! |---|---|
//! | the watcher's status | its file |
//! | the members | the directory of the roster |
//! | the agents of other hosts | the directory of their reports |
//! | a mailbox: counts, held messages, dead tasks | one of its directories; or a message of it is delayed |
//! | the blackboard | its file |
//! | ladders | their directory |
//! | own files and directories that are something else | the directory of the queue, of the state, of the mailboxes or of the requests |
//! | requests | at each read, but for those that were closed before |
//! | requests that were not decided | at each read while there are some |
//! | mailboxes on servers, step queues, control files, budgets | at each read |
//!
//! A caller that watches the [`places`](OverviewReader::places) can pass those in which something has changed; the
//! stamps of the others are then not even checked. Because stamps can miss a file that is written in place,
//! everything is read again every [`WHOLE_INTERVAL`].

use std::collections::{BTreeMap, HashSet};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ensemble_core::driver::{LadderFile, LadderStore};
use ensemble_core::env::{Clock as _, Monotonic, SystemClock};
use ensemble_core::message::{MessageId, Name, Timestamp};
use ensemble_core::requests::{AskedRequest, RequestStore, UnplannedTask};
use ensemble_core::spool::Spool;
use ensemble_core::{Error, Result};
use ensemble_team::board::SharedCopy;
use ensemble_team::holdings::{Holding, HoldingPlaces};
use ensemble_team::roster::Member;
use ensemble_team::silence::SilentPeer;

use super::agents::AgentLookup;
use super::changes::ProjectChanges;
use super::kept::CachedPart;
use super::misplaced::{MisplacedPart, find_misplaced, name_causes};
use super::parts::{self, MailboxSource, SeenLetters, SeenMailbox};
use super::undecided::ExpiredRequests;
use super::watcher_view::WrittenStatus;
use super::{AgentOverview, MailboxOverview, Overview, OverviewSource, StateSource, WatcherView};
use crate::attention::{AwayServers, PersonMail, StrandedFile, UnreadablePart};
use crate::hosts::{self, OtherHost};
use crate::project::Project;
use crate::stranded::find_stranded;
use crate::troubles;
use crate::workload::{self, TaskBooks, Workload};

const WHOLE_INTERVAL: Duration = Duration::from_secs(30);

/// Fewer mailboxes are not worth another thread.
const MAILBOXES_A_THREAD: usize = 200;
const THREADS_MAX: usize = 8;

pub struct OverviewReader {
    project: Project,
    books: TaskBooks,
    said: CachedPart<WrittenStatus>,
    roster: CachedPart<RosterView>,
    hosts: CachedPart<Vec<OtherHost>>,
    names: CachedPart<Vec<Name>>,
    mailboxes: BTreeMap<Name, CachedPart<SeenMailbox>>,
    ladders: CachedPart<Vec<LadderFile>>,
    stranded: CachedPart<Vec<StrandedFile>>,
    misplaced: CachedPart<Vec<MisplacedPart>>,
    closed: HashSet<Name>,
    undecided: ExpiredRequests,
    whole_at: Option<Monotonic>,
    looks_again: bool,
}

#[derive(Debug, Default)]
pub(super) struct RosterView {
    pub(super) members: Vec<Member>,
    unreadable: Vec<UnreadablePart>,
}

#[derive(Default)]
struct MailView {
    views: Vec<MailboxOverview>,
    held: Vec<(Name, Holding)>,
    dead: SeenLetters,
    notices: Vec<MessageId>,
    unplanned: Vec<UnplannedTask>,
    pending: Vec<AskedRequest>,
    undecided: Vec<AskedRequest>,
    unreadable: Vec<UnreadablePart>,
    for_person: Vec<PersonMail>,
}

impl OverviewReader {
    pub fn new(project: &Project) -> Self {
        let roster = project.roster();
        let ladders = LadderStore::new(&project.state);
        Self {
            books: TaskBooks::default(),
            said: CachedPart::of(vec![project.watch_status()]),
            roster: CachedPart::of(vec![roster.dir().to_owned()]),
            hosts: CachedPart::of(vec![hosts::directory(&project.state)]),
            names: CachedPart::of(vec![parts::mailboxes_dir(project)]),
            mailboxes: BTreeMap::new(),
            ladders: CachedPart::of(vec![ladders.dir()]),
            stranded: CachedPart::of(parts::box_places(project)),
            misplaced: CachedPart::of(vec![
                project.queue.clone(),
                project.state.clone(),
                parts::mailboxes_dir(project),
                parts::requests_dir(project),
            ]),
            closed: HashSet::new(),
            undecided: ExpiredRequests::default(),
            whole_at: None,
            looks_again: true,
            project: project.clone(),
        }
    }

    /// As [`OverviewReader::new`], for one look alone: it keeps nothing, and several threads read many mailboxes.
    pub(super) fn once(project: &Project) -> Self {
        Self { looks_again: false, ..Self::new(project) }
    }

    /// Reads everything that may have changed. Each part is read on its own: one that cannot be read is a need, and
    /// hides no other.
    pub fn refresh_overview(
        &mut self,
        changes: &ProjectChanges,
        source: OverviewSource<'_>,
        evidence: StateSource,
    ) -> Overview {
        let now = SystemClock.monotonic();
        if self.whole_at.is_none_or(|at| now.since(at) >= WHOLE_INTERVAL) {
            self.forget();
            self.whole_at = Some(now);
        }
        let (mut warnings, mut unreadable) = (Vec::new(), Vec::new());
        let files = source.store().and_then(RequestStore::shared_files);
        if let (Some(files), Some(copy)) = (files, self.project.shared_copy())
            && let Err(error) = SharedCopy::new(copy, files).pull()
        {
            warnings.push(format!("the blackboard: {error}"));
        }
        self.books.refresh_books(&self.project);
        let remarks = self.books.board().into_iter().flat_map(|board| &board.warnings);
        warnings.extend(remarks.map(|warning| format!("the blackboard: {warning}")));
        let watcher =
            WatcherView::read_status(&self.project, (&mut self.said, changes), &mut warnings);
        let (mail, away) = match self.mail(changes, source, &mut unreadable) {
            Ok(mail) => (mail, None),
            Err(away) => (MailView::default(), Some(away.since(self.away_since(&watcher)))),
        };
        let workload = self.workload(&mail, &mut unreadable);
        let agents =
            self.agents(changes, source, (&watcher, &workload, &mail), evidence, &mut unreadable);
        let stranded = self.stranded_files(changes, source, &mut unreadable);
        let project = &self.project;
        let ladders =
            self.ladders.get(changes, || parts::ladders(&LadderStore::new(&project.state)));
        let now = source.store().map_or_else(|| SystemClock.wall(), RequestStore::now);
        let troubles = troubles::of_project(project, &self.books, now);
        let mut troubles = noted(troubles, "what stops the team", &mut unreadable);
        troubles.extend(watcher.failures());
        troubles.extend(parts::lost_batches(project, source.directory()));
        let mut overview = Overview {
            at: SystemClock.wall(),
            agents,
            holds: workload.holds,
            pending: mail.pending,
            undecided: mail.undecided,
            ladders: parts::untaken(
                &noted(ladders, "the ladders", &mut unreadable),
                source.store(),
            ),
            troubles,
            steps: parts::standing_steps(&self.books, project, &mut unreadable),
            open_tasks: parts::open_tasks(&self.books),
            needs: Vec::new(),
            away,
            unreadable,
            warnings,
            watcher,
            mailboxes: mail.views,
            people: project.people(),
        };
        self.name_causes(changes, &mut overview.unreadable);
        let (dead, unplanned, person) = (&mail.dead, &mail.unplanned, &mail.for_person);
        overview.needs =
            overview.needs_of((&self.project, source), dead, unplanned, &stranded, person);
        overview
    }

    fn workload(&self, mail: &MailView, unreadable: &mut Vec<UnreadablePart>) -> Workload {
        let held = self.books.holds_with(HoldingPlaces::of_messages(&mail.held), |_| true);
        let holds = held.map(|known| {
            let of_steps = known.unread.iter();
            unreadable.extend(of_steps.map(|error| UnreadablePart::new("steps.db", error)));
            known.by_agent
        });
        let waits_for = workload::waits_in(&mail.pending);
        Workload { waits_for, holds: holds.unwrap_or_default() }
    }

    /// Since when the watcher, or a verb of this host, has not reached the servers.
    fn away_since(&self, watcher: &WatcherView) -> Option<Timestamp> {
        watcher.servers_lost_at().or_else(|| {
            let silence = SilentPeer::Team.read_silence(&self.project.state, SystemClock.wall());
            silence.ok().flatten().map(|silence| silence.since)
        })
    }

    fn name_causes(&mut self, changes: &ProjectChanges, unreadable: &mut Vec<UnreadablePart>) {
        let project = &self.project;
        let misplaced = self.misplaced.get(changes, || Ok(find_misplaced(project)));
        name_causes(&misplaced.unwrap_or_default(), unreadable);
        unreadable.dedup();
    }

    /// The files that cannot be routed. While the servers are away, it is not known who has a mailbox.
    fn stranded_files(
        &mut self,
        changes: &ProjectChanges,
        source: OverviewSource<'_>,
        unreadable: &mut Vec<UnreadablePart>,
    ) -> Arc<Vec<StrandedFile>> {
        let Some(store) = source.store() else { return Arc::default() };
        let project = &self.project;
        let found = self.stranded.get(changes, || find_stranded(project, store.broker()));
        noted(found, "the drop boxes", unreadable)
    }

    fn agents(
        &mut self,
        changes: &ProjectChanges,
        source: OverviewSource<'_>,
        (watcher, workload, mail): (&WatcherView, &Workload, &MailView),
        evidence: StateSource,
        unreadable: &mut Vec<UnreadablePart>,
    ) -> Vec<AgentOverview> {
        let project = &self.project;
        let roster = self.roster.get(changes, || RosterView::read(project));
        let roster = noted(roster, "the roster", unreadable);
        unreadable.extend(roster.unreadable.iter().cloned());
        let others = self.hosts.get(changes, || Ok(hosts::others(&project.state)));
        let others = others.unwrap_or_default();
        let hosts: &[OtherHost] = if source.directory().is_some() { &[] } else { &others };
        let mailboxes = &mail.views;
        let look = AgentLookup { hosts, project, source, evidence, watcher, workload, mailboxes };
        look.agents(&roster.members, &self.books)
    }

    /// The directories in which a change may change the overview, as of the last look.
    pub fn places(&self) -> Vec<PathBuf> {
        let project = &self.project;
        let mailboxes = parts::mailboxes_dir(project);
        let of_mailbox = |name: &Name| parts::mailbox_places(&mailboxes, name);
        let mut places: Vec<PathBuf> = self.mailboxes.keys().flat_map(of_mailbox).collect();
        places.extend([
            project.state.clone(),
            project.roster().dir().to_owned(),
            project.panes(),
            project.logs(),
            hosts::directory(&project.state),
            project.queue.clone(),
            parts::requests_dir(project),
            LadderStore::new(&project.state).dir(),
            mailboxes,
        ]);
        places.extend(parts::box_places(project));
        places.extend(project.shared_copy());
        if let Some(board) = self.books.place().and_then(|board| board.path().parent()) {
            places.push(board.to_owned());
        }
        places
    }

    fn forget(&mut self) {
        self.books = TaskBooks::default();
        self.said.forget();
        self.roster.forget();
        self.hosts.forget();
        self.names.forget();
        self.mailboxes.values_mut().for_each(CachedPart::forget);
        self.ladders.forget();
        self.stranded.forget();
        self.misplaced.forget();
    }

    /// The state of mailboxes and requests; or why the servers that have them cannot be asked.
    fn mail(
        &mut self,
        changes: &ProjectChanges,
        source: OverviewSource<'_>,
        unreadable: &mut Vec<UnreadablePart>,
    ) -> Result<MailView, AwayServers> {
        if let OverviewSource::Away(away) = source {
            return Err(away.clone());
        }
        let Some(store) = source.store() else { return Ok(MailView::default()) };
        let mut mail = MailView::default();
        let mailboxes = self.mailboxes(changes, store, source.directory(), &mut mail);
        kept_or_away(mailboxes, "the mailboxes", &mut mail.unreadable)?;
        let pending = workload::pending_but(store, &mut self.closed);
        let pending = kept_or_away(pending, "the requests", &mut mail.unreadable)?;
        mail.unreadable.extend(
            pending
                .unread
                .iter()
                .map(|(id, error)| UnreadablePart::new(format!("request {id}"), error)),
        );
        mail.pending = pending.asked;
        let undecided = self.undecided.of(store, &mail.notices);
        mail.undecided = kept_or_away(undecided, "the requests", &mut mail.unreadable)?;
        unreadable.append(&mut mail.unreadable);
        Ok(mail)
    }

    fn mailboxes(
        &mut self,
        changes: &ProjectChanges,
        store: &dyn RequestStore,
        directory: Option<&Spool>,
        mail: &mut MailView,
    ) -> Result<()> {
        let queue = store.broker();
        let names = match directory {
            Some(_) => self.names.get(changes, || queue.mailboxes())?,
            None => queue.mailboxes()?.into(),
        };
        let is_listed = |name: &Name| names.binary_search(name).is_ok();
        self.mailboxes.retain(|name, _| is_listed(name));
        let home = parts::mailboxes_dir(&self.project);
        for name in names.iter() {
            self.mailboxes.entry(name.clone()).or_insert_with(|| {
                // Nothing here says what has changed on servers, and one look compares with nothing.
                let places = directory.filter(|_| self.looks_again);
                let places = places.map(|_| parts::mailbox_places(&home, name));
                CachedPart::of(places.unwrap_or_default())
            });
        }
        let glances = directory.map(Spool::glances).transpose()?;
        let post = MailboxSource {
            queue,
            directory: directory.zip(glances.as_ref()),
            project: &self.project,
        };
        let mut known: Vec<(&Name, &mut CachedPart<SeenMailbox>)> =
            self.mailboxes.iter_mut().collect();
        let is_shared = directory.is_some() && !self.looks_again;
        for (name, seen) in names.iter().zip(read_all(&mut known, changes, post, is_shared)) {
            let seen = match seen {
                // Removed since it was listed.
                Err(Error::NoMailbox { .. }) => continue,
                Err(error) if error.is_server_away() => return Err(error),
                // Its counts are not known, which is not the same as 0.
                Err(error) => {
                    mail.unreadable.push(UnreadablePart::new(format!("mailbox {name}"), &error));
                    continue;
                }
                Ok(seen) => seen,
            };
            mail.unreadable.extend(seen.unreadable.iter().cloned());
            mail.views.push(seen.view.clone());
            mail.held.extend(seen.held.iter().cloned());
            mail.dead.tasks.extend(seen.dead.tasks.iter().cloned());
            mail.dead.ids.extend(seen.dead.ids.iter().cloned());
            mail.notices.extend(seen.notices.iter().cloned());
            mail.unplanned.extend(seen.unplanned.iter().cloned());
            mail.for_person.extend(seen.mail.iter().cloned());
        }
        mail.for_person.sort_by_key(|unread| unread.at);
        Ok(())
    }
}

/// A part; one that cannot be read is noted, and empty.
fn noted<T: Default>(read: Result<T>, about: &str, unreadable: &mut Vec<UnreadablePart>) -> T {
    read.unwrap_or_else(|error| {
        unreadable.push(UnreadablePart::new(about, &error));
        T::default()
    })
}

/// As [`noted`], of what may be on servers: one of their failures concerns every part.
fn kept_or_away<T: Default>(
    read: Result<T>,
    about: &str,
    unreadable: &mut Vec<UnreadablePart>,
) -> Result<T, AwayServers> {
    match read {
        Err(error @ Error::Server { .. }) => Err(AwayServers::from(&error)),
        other => Ok(noted(other, about, unreadable)),
    }
}

/// Reads mailboxes in their order. With `is_shared`, several threads read a share each if that is worth their start.
fn read_all(
    known: &mut [(&Name, &mut CachedPart<SeenMailbox>)],
    changes: &ProjectChanges,
    post: MailboxSource<'_>,
    is_shared: bool,
) -> Vec<Result<Arc<SeenMailbox>>> {
    let read = |(name, known): &mut (&Name, &mut CachedPart<SeenMailbox>)| {
        let seen = known.get(changes, || SeenMailbox::read(post, name));
        if seen.as_ref().is_ok_and(|seen| !seen.lasts()) {
            known.forget();
        }
        seen
    };
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (known.len() / MAILBOXES_A_THREAD).min(processors).min(THREADS_MAX);
    if !is_shared || threads < 2 {
        return known.iter_mut().map(read).collect();
    }
    let share = known.len().div_ceil(threads);
    thread::scope(|scope| {
        let started: Vec<_> = known
            .chunks_mut(share)
            .map(|share| scope.spawn(move || share.iter_mut().map(read).collect::<Vec<_>>()))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<_>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        started.into_iter().flat_map(join).collect()
    })
}

impl RosterView {
    fn read(project: &Project) -> Result<Self> {
        let (members, errors) = project.roster().entries()?;
        let part = |error| UnreadablePart::new("a member of the roster", error);
        Ok(Self { members, unreadable: errors.iter().map(part).collect() })
    }
}

#[cfg(test)]
mod tests {
    use ensemble_core::message::Envelope;
    use ensemble_core::spool::SpoolOptions;

    use super::*;

    #[test]
    fn a_look_at_many_mailboxes_shows_each_once_and_in_order() {
        let home = tempfile::tempdir().unwrap();
        let spool = Spool::create(&home.path().join("queue"), SpoolOptions::default()).unwrap();
        let count = 2 * MAILBOXES_A_THREAD + 3;
        for number in 0..count {
            let mailbox = spool.root().join("mailbox").join(format!("w{number:04}"));
            std::fs::create_dir(&mailbox).unwrap();
        }
        let last = Name::new(format!("w{:04}", count - 1)).unwrap();
        spool.publish(&Envelope::new(last.clone(), "x")).unwrap();
        spool.receive(&last, &last).unwrap().unwrap();
        let project = Project::discover(Some(spool.root())).unwrap();
        let source = OverviewSource::Here(&spool);
        let once = Overview::gather_once(&project, source, StateSource::Watcher);
        let names: Vec<&str> = once.mailboxes.iter().map(|view| view.name.as_str()).collect();
        assert_eq!((names.len(), names.is_sorted()), (count, true));
        assert_eq!(once.holds.keys().collect::<Vec<_>>(), [&last]);
        let look = |reader: &mut OverviewReader| {
            reader.refresh_overview(&ProjectChanges::Anywhere, source, StateSource::Watcher)
        };
        let mut reader = OverviewReader::new(&project);
        let first = look(&mut reader);
        assert_eq!(format!("{:?}", first.mailboxes), format!("{:?}", once.mailboxes));
        std::fs::remove_dir(spool.root().join("mailbox/w0000")).unwrap();
        assert_eq!(look(&mut reader).mailboxes.len(), count - 1);
    }
}
