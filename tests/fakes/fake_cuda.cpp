#include "tests/fakes/fake_cuda.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "tests/fakes/fake_streams.hpp"
#include "tests/fakes/guarded_heap.hpp"
#include "tests/support/gpu/fibers.hpp"

namespace fake_cuda {
namespace {

struct State {
  std::mt19937 random{1};
  std::vector<CUstream_st*> streams;
  int streams_made = 0;
  bool slow_streams = false;
  std::int64_t turns = 0;
  std::set<std::string> loaded;  // kernels
  std::vector<std::string> log;
  std::map<std::string, std::deque<cudaError_t>> failures;
  cudaError_t broken = cudaSuccess;
  cudaError_t last_error = cudaSuccess;
  int devices = 1;
  unsigned char uuid = 0;
  Properties properties;
  int outside = 0;  // pieces of work shared with other processes
  int waits = 0;
  bool is_waiting = false;  // the latest query was of unfinished work
  std::size_t least_left = SIZE_MAX;
  bool traces = false;
  Trace trace;
  std::int64_t first_place = 0;  // number of the trace's first piece
};
State& state() {
  static State the_state;
  return the_state;
}

/// Returns whether an earlier piece of another stream is before this stream's next one in their hardware queue.
bool is_kept_back(const CUstream_st& stream) {
  const Item& next = stream.queue.front();
  return !next.is_end && std::ranges::any_of(state().streams, [&](const CUstream_st* other) {
    if (other->connection != stream.connection) return false;
    const auto waiting = std::ranges::find(other->queue, false, &Item::is_end);
    return waiting != other->queue.end() && waiting->turn < next.turn;
  });
}

/// Runs one piece of work of a random stream. Returns false if none can run.
bool run_one() {
  std::vector<CUstream_st*> ready;
  for (CUstream_st* stream : state().streams) {
    if (!stream->queue.empty() && !is_kept_back(*stream) && stream->queue.front().ready()) ready.push_back(stream);
  }
  if (ready.empty()) return false;
  if (!std::ranges::all_of(ready, &CUstream_st::slow)) std::erase_if(ready, std::mem_fn(&CUstream_st::slow));
  CUstream_st* stream = ready[state().random() % ready.size()];
  const auto run = std::move(stream->queue.front().run);
  stream->queue.pop_front();
  run();
  return true;
}

/// Runs one piece. Returns false if none can run.
bool step() {
  const GuardedHeap::Access access(guarded_heap());
  return run_one();
}

/// Returns whether `condition` holds, as a query of the host does, and runs a piece of work if it does not. Guarded
/// memory is slow to open: then all work up to the condition is run.
cudaError_t query(const std::function<bool()>& condition) {
  State& s = state();
  const bool was_met = condition();
  if (!was_met) {
    ++s.waits;
    s.is_waiting = true;
    if (guarded_heap() == nullptr) {
      run_one();
      return cudaErrorNotReady;
    }
    const GuardedHeap::Access access(guarded_heap());
    while (!condition() && run_one()) {
    }
    if (!condition()) return cudaErrorNotReady;
  }
  if (std::exchange(s.is_waiting, false)) s.least_left = std::min(s.least_left, pending());
  return cudaSuccess;
}

struct ErrorTexts {
  cudaError_t error;
  const char* name;
  const char* text;
};

const ErrorTexts& texts_of(cudaError_t error) {
  static constexpr ErrorTexts table[] = {
      {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
      {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
      {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
      {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
      {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "unknown error"},
      {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "unknown error"},
      {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation", "unknown error"},
  };
  static constexpr ErrorTexts unknown{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
  const auto* const found = std::ranges::find(table, error, &ErrorTexts::error);
  return found == std::end(table) ? unknown : *found;
}

}  // namespace

cudaError_t outcome(const char* function) {
  if (std::deque<cudaError_t>& failures = state().failures[function]; !failures.empty()) {
    state().last_error = failures.front();
    failures.pop_front();
    return state().last_error;
  }
  return state().broken;
}

void push(cudaStream_t stream, Item item) {
  if (stream->capture != nullptr) return push_captured(stream, std::move(item));
  stream->place = trace(item, stream->number, stream->priority, stream->place);
  item.turn = ++state().turns;
  stream->queue.push_back(std::move(item));
}
std::int64_t trace(const Item& item, int stream, int priority, std::int64_t before) {
  State& s = state();
  if (!s.traces) return -1;
  // Pieces before the trace count as done.
  const auto step_of = [&](std::int64_t place) {
    return static_cast<int>(std::max<std::int64_t>(place - s.first_place, -1));
  };
  Step step{item.name, stream, priority, item.demand, step_of(before), {}};
  for (const std::int64_t place : item.after) {
    if (step_of(place) >= 0) step.events.push_back(step_of(place));
  }
  s.trace.push_back(std::move(step));
  return s.first_place + static_cast<std::int64_t>(s.trace.size()) - 1;
}
void start_trace() { state().traces = true; }
Trace take_trace() {
  State& s = state();
  s.traces = false;
  s.first_place += static_cast<std::int64_t>(s.trace.size());
  return std::exchange(s.trace, {});
}
std::vector<cudaStream_t>& streams() { return state().streams; }
cudaStream_t make_stream(int priority) {
  auto* stream = new CUstream_st;
  stream->number = state().streams_made++;
  stream->connection = connection_of(stream->number);
  stream->priority = priority;
  stream->slow = state().slow_streams;
  return state().streams.emplace_back(stream);
}

void reset(unsigned seed) {
  State fresh;
  fresh.random.seed(seed);
  fresh.streams = std::move(state().streams);
  take_trace();
  fresh.first_place = state().first_place;
  // Dropped items may be graphs, whose streams leave the list.
  std::vector<std::deque<Item>> dropped;
  for (CUstream_st* stream : fresh.streams) dropped.push_back(std::exchange(stream->queue, {}));
  state() = std::move(fresh);
}
const std::vector<std::string>& log() { return state().log; }
void clear_log() { state().log.clear(); }
void fail_next(const std::string& function, cudaError_t status) { state().failures[function].push_back(status); }
std::size_t pending() {
  std::size_t sum = 0;
  for (const CUstream_st* stream : state().streams) sum += stream->queue.size();
  return sum;
}
void enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work, const Demand& demand) {
  note(fmt::format("{} {}", name, name_of(stream)));
  push(stream, {name, [] { return true; }, std::move(work), demand});
}
void enqueue_until(cudaStream_t stream, const std::string& name, std::function<void()> start,
                   std::function<bool()> done, std::function<void()> finish, const Demand& demand) {
  const auto begin = [start = std::move(start)] {
    ++state().outside;
    start();
  };
  enqueue(stream, name, begin, demand);
  const auto end = [finish = std::move(finish)] {
    --state().outside;
    finish();
  };
  push(stream, {.name = name, .ready = std::move(done), .run = end, .is_end = true});
}
void note(const std::string& text) { state().log.push_back(text); }
int waits() { return state().waits; }
std::size_t take_least_left() { return std::exchange(state().least_left, SIZE_MAX); }
void run_all() {
  ++state().waits;
  const GuardedHeap::Access access(guarded_heap());
  while (run_one() || state().outside > 0) {
  }
}
void run_next() {
  const GuardedHeap::Access access(guarded_heap());
  run_one();
}
int connection_of(int stream) {
  constexpr int connections = 32;
  return stream % connections;
}
void load_kernel(const std::string& name) {
  if (state().loaded.insert(name).second) run_all();
}
void unload_kernels() { state().loaded.clear(); }
void make_slow_streams(bool slow) { state().slow_streams = slow; }
void break_device(cudaError_t status) { state().broken = status; }
void set_devices(int count, unsigned char uuid) {
  state().devices = count;
  state().uuid = uuid;
}
Properties& properties() { return state().properties; }
std::string name_of(cudaStream_t stream) { return fmt::format("stream {}", stream->number); }

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) { return texts_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return texts_of(error).text; }
cudaError_t cudaGetLastError() {
  if (state().broken != cudaSuccess) return state().broken;
  return std::exchange(state().last_error, cudaSuccess);
}
cudaError_t cudaGetDeviceCount(int* count) {
  FAKE_OUTCOME("cudaGetDeviceCount");
  *count = state().devices;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int device) {
  FAKE_OUTCOME("cudaSetDevice");
  return device < state().devices ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  FAKE_OUTCOME("cudaGetDeviceProperties");
  *properties = {};
  std::strcpy(properties->name, "Fake H200");
  properties->major = state().properties.major;
  properties->minor = state().properties.minor;
  properties->multiProcessorCount = multiprocessors;
  properties->totalGlobalMem = std::size_t{139} << 30;
  properties->l2CacheSize = 1 << 16;
  properties->sharedMemPerBlockOptin = trireme::gpu::host::max_shared_bytes;
  properties->uuid.bytes[0] = static_cast<char>(state().uuid);
  properties->uuid.bytes[1] = static_cast<char>(device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  FAKE_OUTCOME("cudaDeviceGetAttribute");
  const auto found = state().properties.attributes.find(attribute);
  if (found == state().properties.attributes.end()) return cudaErrorInvalidValue;
  *value = found->second;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return outcome("cudaDeviceGetStreamPriorityRange");
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  FAKE_OUTCOME("cudaStreamCreateWithPriority");
  *stream = make_stream(priority);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  // As with the real one, enqueued work still runs.
  while (!stream->queue.empty() && step()) {
  }
  std::erase(state().streams, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  FAKE_OUTCOME_OUTSIDE_CAPTURE("cudaStreamQuery");
  return query([stream] { return stream->queue.empty(); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  FAKE_OUTCOME_OUTSIDE_CAPTURE("cudaStreamSynchronize");
  note("cudaStreamSynchronize " + name_of(stream));
  while (!stream->queue.empty() && step()) {
  }
  return outcome("cudaStreamSynchronize");
}
cudaError_t cudaDeviceSynchronize() {
  FAKE_OUTCOME_OUTSIDE_CAPTURE("cudaDeviceSynchronize");
  run_all();
  return outcome("cudaDeviceSynchronize");
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  FAKE_OUTCOME("cudaStreamWaitEvent");
  note("cudaStreamWaitEvent " + name_of(stream));
  if (flags == cudaEventWaitExternal) {
    if (stream->capture == nullptr || event->captured) return cudaErrorInvalidValue;
    push_captured(stream, {.name = "wait", .ready = [] { return true; }, .run = [] {}, .awaited = event});
    return cudaSuccess;
  }
  if (event->captured) {
    const std::shared_ptr<Capture> capture = event->capture.lock();
    if (capture == nullptr || capture->origin == nullptr) return cudaErrorCapturedEvent;
    if (stream->capture != nullptr && stream->capture != capture) return cudaErrorStreamCaptureMerge;
    // The stream joins the capture at this event.
    if (stream->capture == nullptr) {
      stream->capture = capture;
      stream->last_node = event->node;
    }
    push_captured(stream, {"wait", [] { return true; }, [] {}}, {event->node});
    return cudaSuccess;
  }
  if (stream->capture != nullptr) {
    refuse_in_capture();
    return cudaErrorStreamCaptureIsolation;
  }
  // An event that is destroyed while awaited still counts: the number is copied, the event is not freed.
  const int turn = event->recorded;
  push(stream, {"wait", [event, turn] { return event->passed >= turn; }, [] {}, {}, {event->place}});
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  FAKE_OUTCOME("cudaEventCreateWithFlags");
  // Kept to the end of the program: streams may wait for it after it was destroyed.
  static std::vector<std::unique_ptr<CUevent_st>> events;
  events.push_back(std::make_unique<CUevent_st>());
  *event = events.back().get();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* time_ms, cudaEvent_t start, cudaEvent_t end) {
  *time_ms = event_distance_ms;
  if (!state().traces) return cudaSuccess;
  const std::vector<double> ends = ends_us(state().trace);
  // An event before the trace passed when it began.
  const auto time_us = [&](const CUevent_st& event) {
    const std::int64_t place = event.place - state().first_place;
    return place < 0 ? 0 : ends.at(static_cast<std::size_t>(place));
  };
  *time_ms = static_cast<float>((time_us(*end) - time_us(*start)) / 1000);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FAKE_OUTCOME("cudaEventRecord");
  note("cudaEventRecord " + name_of(stream));
  event->captured = stream->capture != nullptr;
  event->capture = stream->capture;
  if (event->captured) {
    push_captured(stream, {"record", [] { return true; }, [] {}});
    event->node = stream->last_node;
    return cudaSuccess;
  }
  const int turn = ++event->recorded;
  push(stream, {"record", [] { return true; }, [event, turn] { event->passed = turn; }});
  event->place = stream->place;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  FAKE_OUTCOME_OUTSIDE_CAPTURE("cudaEventQuery");
  if (event->captured) return cudaErrorCapturedEvent;
  return query([event] { return event->passed == event->recorded; });
}

cudaError_t cudaProfilerStart() {
  FAKE_OUTCOME("cudaProfilerStart");
  note("cudaProfilerStart");
  return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
  FAKE_OUTCOME("cudaProfilerStop");
  note("cudaProfilerStop");
  return cudaSuccess;
}

}  // extern "C"
