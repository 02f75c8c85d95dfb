#include "src/app/commands/commands.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "io/corpus/corpus_store.hpp"
#include "src/app/job/job.hpp"
#include "src/app/options/document_options.hpp"
#include "src/app/options/options.hpp"

namespace trireme::app {

int corpus_verify_command(const CommandLine& line) {
  std::string path;
  std::optional<int> workers;
  Options options(line.command(),
                  "Reads an entire corpus and checks it against its digests. Under mpirun the ranks share the work.");
  options.add_argument("FILE.h5", &path, "A corpus made by trireme corpus build.");
  add_workers(options, &workers);
  if (!line.read(options)) return 0;

  const auto world = line.environment().make_world();
  check_same_options(*world, options);
  std::unique_ptr<io::CorpusStore> store;
  collectively(*world, [&] { store = std::make_unique<io::CorpusStore>(path); });
  ThreadPool pool(thread_count(*world, workers));
  store->verify(*world, pool);
  if (world->rank() == 0) {
    fmt::print("{} is complete: {} documents, {} tokens, digest {}\n", path, store->documents(), store->token_count(),
               store->info().content_digest);
  }
  return 0;
}

}  // namespace trireme::app
