#pragma once

#include <memory>

#include "src/tensor/stream.hpp"

namespace trireme::test {

/// Stream on a clock that only the test advances.
class ClockStream final : public Stream {
 public:
  std::unique_ptr<Event> record() override { return ImmediateStream().record(); }
  void record_again(Event&) override {}
  std::unique_ptr<TimedEvent> record_time() override { return std::make_unique<Moment>(now_ms); }
  void wait(const Event&) override {}
  void wait_at_launch(const Event&) override {}
  void synchronize() override {}
  double now_ms = 5000;  ///< not the host's time

 private:
  struct Moment final : TimedEvent {
    explicit Moment(double at) : ms(at) {}
    double ms_since(const TimedEvent& earlier) const override { return ms - dynamic_cast<const Moment&>(earlier).ms; }
    double ms;
  };
};

}  // namespace trireme::test
