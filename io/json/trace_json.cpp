#include "io/json/trace_json.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"

namespace trireme::io {

std::string trace_events(std::span<const TraceSpan> spans, const std::string& process, int rank) {
  using Json = nlohmann::ordered_json;
  const auto metadata = [&](const char* name, const Json& arguments) {
    return json_dump(Json{{"ph", "M"}, {"pid", rank}, {"tid", 0}, {"name", name}, {"args", arguments}});
  };
  std::string text =
      metadata("process_name", {{"name", process}}) + ",\n" + metadata("process_sort_index", {{"sort_index", rank}});
  for (const TraceSpan& span : spans) {
    std::string arguments;
    if (span.micro_batch >= 0) {
      arguments = fmt::format(R"(, "args": {{"chunk": {}, "micro_batch": {}}})", span.chunk, span.micro_batch);
    }
    text += fmt::format(
        ",\n"
        R"({{"ph": "X", "pid": {}, "tid": 0, "name": "{}", "cat": "{}", "ts": {:.3f}, "dur": {:.3f}{}}})",
        rank, span.name, span.category, span.start_us, span.end_us - span.start_us, arguments);
  }
  return text;
}

std::vector<plan::TraceEvent> read_trace(const std::string& text, const std::string& path) {
  std::vector<plan::TraceEvent> events;
  try {
    const nlohmann::json whole = nlohmann::json::parse(text);
    for (const nlohmann::json& event : whole.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      const double start = event.at("ts");
      events.push_back({event.at("pid"), event.at("name"), start, start + event.at("dur").get<double>()});
    }
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{} is not a trace of a training run: {}", path, json_fault(error.what()));
  }
  return events;
}

}  // namespace trireme::io
