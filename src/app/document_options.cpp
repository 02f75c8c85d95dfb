#include "src/app/document_options.hpp"

#include "mpi/node.hpp"
#include "src/app/job.hpp"
#include "src/base/check.hpp"

namespace trireme::app {

void add_document_format(Options& options, const std::string& name, DocumentFormat* format, const std::string& help) {
  options.add_choice(name, format,
                     {{"auto", {io::TextFormat::by_name, false}},
                      {"text", {io::TextFormat::text, false}},
                      {"lines", {io::TextFormat::text, true}},
                      {"json", {io::TextFormat::json_lines, false}}},
                     help);
}

void check_output_name(const std::string& option, const std::string& path) {
  TRIREME_CHECK(!path.ends_with(".gz") && !path.ends_with(".zst"), ConfigError,
                "--{} {}: it is written without compression; give it another name and compress it afterwards", option,
                path);
}

void check_same_options(Communicator& world, const Options& options) {
  std::string given = version();
  for (const auto& [name, value] : options.values()) given += "\n" + name + " = " + value;
  check_same_everywhere(world, "the options or the program", given);
}

int thread_count(const mpi::MpiCommunicator& world, std::optional<int> workers) {
  const int share = default_thread_count(mpi::find_node_place(world).ranks_sharing_cores);
  return workers.value_or(share);
}

}  // namespace trireme::app
