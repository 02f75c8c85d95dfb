#include "src/app/commands/generate/interactive.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/app/commands/generate/line_editor.hpp"
#include "src/app/commands/generate/prompt_session.hpp"
#include "src/app/commands/generate/typed_chat.hpp"
#include "src/app/job/stop_signal.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
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
  const bool is_chat = options.source() == TextSource::conversation;
  const model::ModelConfig& model = saved.model->config();
  const std::unique_ptr<data::Tokenizer> tokenizer =
      is_chat ? tokenizer_of(saved.description) : prompt_tokenizer_of(saved.description, options.model);
  std::optional<ChatTemplates> templates;
  std::optional<TypedChat> chat;
  if (is_chat) {
    collectively(*job.world, [&] { templates.emplace(*tokenizer, options.chat_template); });
    chat.emplace(*templates, model, options.system);
  }
  const ContinuationText texts(*tokenizer, options.stop);
  infer::GenerationOptions generation = generation_options(options, *tokenizer, texts);
  generation.batch_size = 1;
  generation.interrupted = take_interrupt;
  if (job.is_root() && isatty(STDIN_FILENO) == 1) {
    log::info(is_chat ? "type a message; /new begins another conversation, Ctrl-C ends an answer, Ctrl-D the program"
                      : "type a text to continue; an empty line begins a document, Ctrl-C ends a continuation, Ctrl-D "
                        "the program");
  }
  SharedLines lines(*job.world);
  infer::TextContinuer continuer(*saved.model, *job.world, generation);
  infer::Prompt prompt;
  for (; const std::optional<std::string> line = lines.next(); ++prompt.number) {
    if (is_chat && *line == "/new") {
      chat->clear();
      log::info("another conversation");
    }
    if (is_chat && (line->empty() || *line == "/new")) continue;
    try {
      prompt.tokens = is_chat ? chat->ask(*line) : prompt_tokens(*tokenizer, *line, model, "this prompt");
    } catch (const DataError& error) {  // on all ranks
      log::info("{}", error.what());
      continue;
    }
    // A template's text must not be cut: an answer ends where the positions do.
    const std::int64_t room = model.max_positions - std::ssize(prompt.tokens);
    prompt.max_new_tokens = is_chat ? std::min(options.max_new_tokens, room) : options.max_new_tokens;
    const InterruptScope scope;
    TextPrinter printer(job.is_root(), texts);
    generation.observe = [&](const infer::Prompt&, const infer::Continuation& continuation) {
      printer.observe(continuation);
    };
    const Timer timer;
    const infer::Continuation continuation = continuer.run(prompt);
    const double elapsed_s = timer.elapsed_s();
    const std::string text = printer.finish(continuation);
    if (is_chat) chat->answer(text);
    log::info("{}, {:.1f} tokens/s{}", counted(std::ssize(continuation.tokens), "token"),
              static_cast<double>(continuation.tokens.size()) / std::max(elapsed_s, 1e-9),
              is_chat && std::ssize(continuation.tokens) == room ? "; the model's positions are full" : "");
  }
}

}  // namespace trireme::app
