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

/// An order of work on a device: work enqueued on one stream runs in that order. On the CPU work runs at once, within
/// the call.
class Stream {
 public:
  virtual ~Stream() = default;
  /// An event after everything enqueued so far.
  virtual std::unique_ptr<Event> record() = 0;
  /// Makes later work on this stream run after `event`; the host does not wait.
  virtual void wait(const Event& event) = 0;
  /// Blocks the host until everything enqueued is done.
  virtual void synchronize() = 0;
};

/// The stream of work that runs at once: the CPU's.
class ImmediateStream final : public Stream {
 public:
  std::unique_ptr<Event> record() override;
  void wait(const Event& event) override { event.synchronize(); }
  void synchronize() override {}
};

}  // namespace trireme
