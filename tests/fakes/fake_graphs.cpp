// Stream capture and graphs of the fake CUDA runtime. A launched graph runs like the streams it was captured from: in
// their order and with the events between them. Otherwise the order is arbitrary, concurrent with all other streams.
#include <algorithm>
#include <utility>

#include "tests/fakes/fake_cuda.hpp"
#include "tests/fakes/fake_streams.hpp"

using namespace fake_cuda;

struct CUgraph_st {
  std::shared_ptr<Capture> work;
};
struct CUgraphExec_st {
  std::shared_ptr<Capture> work;
};

namespace {

/// The active capture; there is one at a time.
std::weak_ptr<Capture> current;

/// A launch under way.
struct Run {
  explicit Run(std::shared_ptr<Capture> what) : work(std::move(what)), done(work->nodes.size(), false) {}
  ~Run() {
    for (const auto& line : lines) std::erase(streams(), line.get());
  }
  std::shared_ptr<Capture> work;
  std::vector<char> done;
  std::int64_t turn = 0;        // that of the launch
  std::vector<int> recordings;  // turns of the events that the nodes await, at the launch
  std::vector<std::unique_ptr<CUstream_st>> lines;
  bool over() const {
    return std::ranges::all_of(done, [](char is) { return is != 0; });
  }
};

/// Puts the nodes on separate streams, one for each line.
void start(Run& run) {
  for (std::size_t i = 0; i < run.work->nodes.size(); ++i) {
    const Capture::Node& node = run.work->nodes[i];
    const auto line = std::ranges::find_if(run.lines, [&](const auto& have) { return have->number == node.line; });
    CUstream_st* stream = line == run.lines.end() ? nullptr : line->get();
    if (stream == nullptr) {
      stream = run.lines.emplace_back(std::make_unique<CUstream_st>()).get();
      stream->number = node.line;
      stream->connection = connection_of(node.line);
      streams().push_back(stream);
    }
    // `run` lives until the piece after all of these has run.
    const auto ready = [&run, &node, i] {
      return std::ranges::all_of(node.after, [&](std::size_t before) { return run.done[before] != 0; }) &&
             node.item.ready() && (node.item.awaited == nullptr || node.item.awaited->passed >= run.recordings[i]);
    };
    const auto work = [&run, &node, i] {
      node.item.run();
      run.done[i] = true;
    };
    stream->queue.push_back(
        {.name = node.item.name, .ready = ready, .run = work, .is_end = node.item.is_end, .turn = run.turn});
  }
}

/// Adds the nodes to the trace, after a piece of it. Returns their numbers there.
std::vector<std::int64_t> trace_nodes(const Capture& work, std::int64_t before) {
  std::vector<std::int64_t> places;
  for (const Capture::Node& node : work.nodes) {
    Item item = node.item;
    std::int64_t place = node.after.empty() ? before : -1;
    for (const std::size_t other : node.after) {
      if (work.nodes[other].line == node.line) {
        place = places[other];
      } else {
        item.after.push_back(places[other]);
      }
    }
    if (item.awaited != nullptr) item.after.push_back(item.awaited->place);
    places.push_back(trace(item, node.line, node.priority, place));
  }
  return places;
}

/// Returns whether all nodes precede the latest node of the origin.
bool joined(const Capture& work, std::size_t last) {
  std::vector<char> reached(work.nodes.size(), false);
  std::vector<std::size_t> open{last};
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (std::exchange(reached[node], true)) continue;
    open.insert(open.end(), work.nodes[node].after.begin(), work.nodes[node].after.end());
  }
  return std::ranges::all_of(reached, [](char is) { return is != 0; });
}

}  // namespace

namespace fake_cuda {

Capture::~Capture() {
  for (void* pointer : memory) release(pointer);
}

void push_captured(cudaStream_t stream, Item item, std::vector<std::size_t> others) {
  others.push_back(stream->last_node);
  stream->last_node = stream->capture->nodes.size();
  stream->capture->nodes.push_back({std::move(item), stream->number, stream->priority, std::move(others)});
}

cudaError_t refuse_in_capture() {
  const std::shared_ptr<Capture> capture = current.lock();
  if (capture == nullptr) return cudaSuccess;
  capture->valid = false;
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace fake_cuda

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  FAKE_OUTCOME("cudaStreamBeginCapture");
  if (!current.expired()) return cudaErrorIllegalState;
  note("cudaStreamBeginCapture " + name_of(stream));
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->last_node = 0;
  stream->capture->nodes.push_back({{"begin", [] { return true; }, [] {}}, stream->number, stream->priority, {}});
  current = stream->capture;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  FAKE_OUTCOME("cudaStreamEndCapture");
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
  for (CUstream_st* other : streams()) {
    if (other->capture == capture) other->capture = nullptr;
  }
  capture->origin = nullptr;
  current.reset();
  if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
  if (!joined(*capture, stream->last_node)) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st{capture};
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->valid   ? cudaStreamCaptureStatusActive
                                       : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  FAKE_OUTCOME_OUTSIDE_CAPTURE("cudaGraphInstantiate");
  *ready = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  FAKE_OUTCOME_OUTSIDE_CAPTURE("cudaGraphLaunch");
  note("cudaGraphLaunch " + name_of(stream));
  const auto run = std::make_shared<Run>(graph->work);
  for (const Capture::Node& node : graph->work->nodes) {
    run->recordings.push_back(node.item.awaited == nullptr ? 0 : node.item.awaited->recorded);
  }
  push(stream, {"graph", [] { return true; }, [run] { start(*run); }});
  run->turn = stream->queue.back().turn;
  push(stream, {.name = "end of graph",
                .ready = [run] { return run->over(); },
                .run = [] {},
                .after = trace_nodes(*graph->work, stream->place),
                .is_end = true});
  return cudaSuccess;
}

}  // extern "C"
