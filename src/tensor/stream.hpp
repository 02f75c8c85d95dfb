#pragma once

#include <memory>

namespace trireme {

/// A point in a stream's order of work.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() const = 0;
  /// Blocks the host until the work before the event is done.
  virtual void synchronize() const = 0;
};

/// A point in a stream's order of work, and the time at which the stream reaches it.
class TimedEvent {
 public:
  virtual ~TimedEvent() = default;
  /// Milliseconds from `earlier`, an event of the same stream, to this one. The work before both must be done.
  virtual double ms_since(const TimedEvent& earlier) const = 0;
};

/// In-order queue of work on a device. On the CPU work runs immediately, within the call.
class Stream {
 public:
  virtual ~Stream() = default;
  /// An event after everything enqueued so far.
  virtual std::unique_ptr<Event> record() = 0;
  /// Moves an event of this backend to that point.
  virtual void record_again(Event& event) = 0;
  /// Likewise, with the time.
  virtual std::unique_ptr<TimedEvent> record_time() = 0;
  /// Makes later work on this stream wait for `event`, without blocking the host.
  virtual void wait(const Event& event) = 0;
  /// The same for an event of work that is not recorded, while this stream's is recorded as a graph: each launch waits
  /// for the event as it is then.
  virtual void wait_at_launch(const Event& event) = 0;
  /// Blocks the host until everything enqueued is done.
  virtual void synchronize() = 0;
};

/// Stream of immediately executed work: the CPU's.
class ImmediateStream final : public Stream {
 public:
  std::unique_ptr<Event> record() override;
  void record_again(Event&) override {}
  std::unique_ptr<TimedEvent> record_time() override;
  void wait(const Event& event) override { event.synchronize(); }
  void wait_at_launch(const Event& event) override { wait(event); }
  void synchronize() override {}
};

}  // namespace trireme
