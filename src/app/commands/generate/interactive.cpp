#include "src/app/commands/generate/interactive.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/app/commands/generate/line_editor.hpp"
#include "src/app/commands/generate/prompt_session.hpp"
#include "src/app/job/stop_signal.hpp"
#include "src/base/log.hpp"
#include "src/base/timer.hpp"

namespace trireme::app {
namespace {

/// Distributes the lines of rank 0. The other ranks get word of it while it waits, so that none takes it for hung.
class SharedLines {
 public:
  explicit SharedLines(Communicator& world)
      : world_(world), reader_("> ", [this] { broadcast_text(world_, waiting, 0); }) {}

  /// Collective. Returns nothing at the end.
  std::optional<std::string> next() {
    if (world_.rank() == 0) {
      const std::optional<std::string> line = reader_.read();
      broadcast_text(world_, line ? has_line + *line : "", 0);
      return line;
    }
    std::string message = waiting;
    while (message == waiting) message = broadcast_text(world_, "", 0);
    return message.empty() ? std::nullopt : std::optional(message.substr(1));
  }

 private:
  static constexpr const char* waiting = "w";
  inline static const std::string has_line = "l";
  Communicator& world_;
  LineReader reader_;
};

/// Effect of SIGINT on the program in a scope: it ends a continuation.
struct InterruptScope {
  InterruptScope() {
    take_interrupt();
    set_on_stop_signal(OnStopSignal::interrupt);
  }
  ~InterruptScope() { set_on_stop_signal(OnStopSignal::end); }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

}  // namespace

void run_interactive(Job& job, SavedModel& saved, const GenerateOptions& options) {
  const std::unique_ptr<data::Tokenizer> tokenizer = prompt_tokenizer_of(saved.description, options.model);
  const ContinuationText texts(*tokenizer, options.stop);
  infer::GenerationOptions generation = generation_options(options, *tokenizer, texts);
  generation.interrupted = take_interrupt;
  if (job.is_root() && isatty(STDIN_FILENO) == 1) {
    log::info(
        "type a text to continue; an empty line begins a document, Ctrl-C ends a continuation, Ctrl-D the program");
  }
  SharedLines lines(*job.world);
  infer::Prompt prompt;
  prompt.max_new_tokens = options.max_new_tokens;
  for (; const std::optional<std::string> line = lines.next(); ++prompt.number) {
    try {
      prompt.tokens = prompt_tokens(*tokenizer, *line, saved.model->config(), "this prompt");
    } catch (const DataError& error) {  // on all ranks
      log::info("{}", error.what());
      continue;
    }
    const InterruptScope scope;
    TextPrinter printer(job.is_root(), texts);
    generation.observe = [&](const infer::Prompt&, const infer::Continuation& continuation) {
      printer.observe(continuation);
    };
    const Timer timer;
    const infer::Continuation continuation = infer::generate(*saved.model, *job.world, {prompt}, generation).front();
    printer.finish(continuation);
    log::info("{} tokens, {:.1f} tokens/s", continuation.tokens.size(),
              static_cast<double>(continuation.tokens.size()) / std::max(timer.elapsed_s(), 1e-9));
  }
}

}  // namespace trireme::app
