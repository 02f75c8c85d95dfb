#include "src/app/options/document_options.hpp"

#include "mpi/node.hpp"

namespace trireme::app {

void add_document_format(Options& options, const std::string& name, DocumentFormat* format, const std::string& help) {
  options.add_choice(name, format,
                     {{"auto", {prepare::TextFormat::by_name, false}},
                      {"text", {prepare::TextFormat::text, false}},
                      {"lines", {prepare::TextFormat::text, true}},
                      {"json", {prepare::TextFormat::json_lines, false}}},
                     help);
}

void add_text_format(Options& options, prepare::TextReaderOptions* reader) {
  options.add_choice("input-format", &reader->format,
                     {{"auto", prepare::TextFormat::by_name},
                      {"text", prepare::TextFormat::text},
                      {"json", prepare::TextFormat::json_lines}},
                     "Format of the input files; auto: by their names.");
  options.add("json-key,json-keys", &reader->json_key, "KEY", "Key of the text in each JSON object.");
}

void add_bad_lines(Options& options, bool* skip, std::int64_t* max_lines) {
  options.add_choice("on-bad-line", skip, {{"stop", false}, {"skip", true}},
                     "Lines that are not JSON or have no text under the key: an error, or skipped and counted.");
  options.add("max-bad-lines", max_lines, "N", "Bad lines to skip before failing.", at_least(0));
}

void add_workers(Options& options, std::optional<int>* workers) {
  options.add("workers", workers, "N", "Threads per rank; default its share of the machine's cores.", between(1, 4096));
}

int thread_count(const mpi::MpiCommunicator& world, std::optional<int> workers) {
  const int available = default_thread_count(mpi::find_node_location(world).ranks_sharing_cores);
  return workers.value_or(available);
}

}  // namespace trireme::app
