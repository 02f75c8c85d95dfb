#include "src/app/commands/generate/prompt_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "io/corpus/prepare_files.hpp"
#include "io/json/chat_json.hpp"
#include "io/json/json_text.hpp"
#include "io/json/prompt_json.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/mapped_file.hpp"
#include "src/base/text.hpp"

namespace trireme::app {

PromptReader::PromptReader(const GenerateOptions& options, std::string_view text, const data::Tokenizer& tokenizer,
                           const model::ModelConfig& model)
    : options_(options), text_(text), tokenizer_(tokenizer), model_(model) {
  prompt_.number = -1;
  const bool reads_lines = options.source() == TextSource::prompts, reads_chats = options.source() == TextSource::chat;
  name_ = !reads_lines && !reads_chats ? "--prompt" : options.file() == "-" ? "standard input" : options.file();
  if (reads_chats) chats_.emplace(tokenizer, options.chat_template);
  // The JSON reader checks UTF-8.
  if (reads_lines && options.prompts != "-") {
    reader_.emplace(io::prepare_files(), std::vector<std::string>{options.prompts},
                    prepare::TextReaderOptions{.format = prepare::TextFormat::json_lines, .check_utf8 = false});
  }
}

bool PromptReader::next() {
  const std::int64_t number = prompt_.number + 1;
  if (number % options_.samples() == 0 && !read_line()) return false;
  prompt_.number = number;
  if (options_.source() == TextSource::nothing) prompt_.id = std::to_string(number + 1);
  return true;
}

bool PromptReader::read_line() {
  if (chats_ && lines_ == 0 && io::is_one_value(text_)) {
    take_chat(std::exchange(text_, {}), name_, "1");
    lines_ = 1;
    return true;
  }
  if (options_.source() != TextSource::prompts && !chats_) {
    if (lines_++ > 0) return false;
    prompt_.tokens = prompt_tokens(tokenizer_, options_.prompt == "-" ? text_ : options_.prompt, model_, name_);
    prompt_.id = "1";
    prompt_.max_new_tokens = options_.max_new_tokens;
    return true;
  }
  if (reader_) {
    if (!reader_->next(piece_)) return false;
    parse_line(piece_.bytes, piece_.position);
    return true;
  }
  while (!text_.empty()) {
    const std::string_view line = text_.substr(0, text_.find('\n'));
    text_.remove_prefix(std::min(text_.size(), line.size() + 1));
    ++lines_;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    parse_line(line, lines_);
    return true;
  }
  return false;
}

void PromptReader::parse_line(std::string_view bytes, std::int64_t position) {
  const std::string where = fmt::format("{}:{}", name_, position);
  if (chats_) return take_chat(bytes, where, std::to_string(position));
  io::PromptLine line = io::parse_prompt(bytes, where);
  prompt_.id = line.id.empty() ? std::to_string(position) : line.id;
  prompt_.max_new_tokens = line.max_new_tokens.value_or(options_.max_new_tokens);
  if (line.text) {
    prompt_.tokens = prompt_tokens(tokenizer_, *line.text, model_, where);
  } else {
    check_prompt(line.tokens, model_, where);
    prompt_.tokens = std::move(line.tokens);
  }
}

void PromptReader::take_chat(std::string_view text, const std::string& where, const std::string& id) {
  const io::Chat chat = io::parse_chat_prompt(text, where);
  prompt_.id = chat.id.empty() ? id : chat.id;
  prompt_.max_new_tokens = chat.max_new_tokens.value_or(options_.max_new_tokens);
  prompt_.tokens = chats_->prompt(chat, where);
  TRIREME_CHECK(!prompt_.tokens.empty(), DataError, "{}: the chat template writes nothing", where);
  check_prompt(prompt_.tokens, model_, where);
}

EarlierResults read_results(const std::string& path) {
  EarlierResults results;
  if (!io::is_there(path)) return results;
  const io::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', begin)) {
    results.ids.push_back(io::json_value(text.substr(begin, end - begin), "id"));
    begin = end + 1;
  }
  results.bytes = static_cast<std::int64_t>(begin);
  return results;
}

infer::PromptSource check_prompts(PromptReader reader, const GenerateOptions& options, const model::ModelConfig& model,
                                  const EarlierResults& earlier) {
  const bool from_nothing = options.source() == TextSource::nothing;
  const std::string name = from_nothing ? "--num-samples" : options.file() == "-" ? "standard input" : options.file();
  infer::PromptSource source;
  while (reader.next()) {
    const infer::Prompt& prompt = reader.prompt();
    const auto at = static_cast<std::size_t>(source.count++);
    source.positions =
        std::max(source.positions, std::ssize(prompt.tokens) + std::min(prompt.max_new_tokens, model.max_positions));
    TRIREME_CHECK(
        at >= earlier.ids.size() || earlier.ids[at] == prompt.id, DataError,
        "--resume: line {} of {} has the id {}, but prompt {} of {} has {}: resume with the prompts that it was made "
        "from",
        at + 1, options.output, shortened(earlier.ids[at]), at + 1, name, shortened(prompt.id));
  }
  TRIREME_CHECK(source.count > 0, DataError, "{} has no {}", name,
                options.source() == TextSource::chat
                    ? "conversation: give one, [{\"role\": \"user\", \"content\": \"TEXT\"}]"
                    : "prompt: give lines, {\"prompt\": \"TEXT\"}");
  TRIREME_CHECK(source.count >= std::ssize(earlier.ids), DataError, "--resume: {} has {} lines, but {} only {} prompts",
                options.output, earlier.ids.size(), name, source.count);
  return source;
}

std::string read_standard_input(Communicator& world) {
  std::string text;
  collectively(world, [&] {
    if (world.rank() != 0) return;
    std::array<char, 1 << 16> buffer{};
    while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), stdin))
      text.append(buffer.data(), size);
    TRIREME_CHECK(std::ferror(stdin) == 0, IoError, "standard input: reading failed: {}", std::strerror(errno));
  });
  return broadcast_text(world, text, 0);
}

}  // namespace trireme::app
