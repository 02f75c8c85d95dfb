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

void add_bad_lines(Options& options, bool* skip, std::int64_t* max_lines) {
  options.add_choice("on-bad-line", skip, {{"stop", false}, {"skip", true}},
                     "Lines that are not JSON or have no text under the key.");
  options.add("max-bad-lines", max_lines, "N", "Bad lines to skip before giving up.", at_least(0));
}

int thread_count(const mpi::MpiCommunicator& world, std::optional<int> workers) {
  const int available = default_thread_count(mpi::find_node_location(world).ranks_sharing_cores);
  return workers.value_or(available);
}

}  // namespace trireme::app
