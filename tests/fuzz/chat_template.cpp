// Chat templates and the conversations that they render: the input is a template, a zero byte and JSON.
#include "io/json/chat_json.hpp"
#include "src/base/error.hpp"
#include "src/base/utf8.hpp"
#include "src/data/template/learned_text.hpp"
#include "src/data/template/template.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace trireme;
using data::jinja::Value;

constexpr data::jinja::Limits limits{.steps = 1 << 14, .bytes = 1 << 20};

/// Returns what `function` returns, or nothing if it throws a DataError of bounded length that names `where`.
template <class Function>
auto tried(const std::string& where, const Function& function) -> std::optional<decltype(function())> {
  try {
    return function();
  } catch (const DataError& error) {
    const std::string_view message = error.what();
    fuzz::require(message.starts_with(where), "an error begins with the name of its file");
    fuzz::require(message.size() < 4000, "an error does not repeat a long text");
  }
  return {};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest = fuzz::text_of(data, size);
  const std::string_view source = fuzz::take_until(rest, std::string_view("\0", 1));
  const auto chat = tried("chat", [&] { return io::parse_chat(rest, "chat"); });
  const auto parsed = tried("template", [&] { return data::jinja::Template("template", source); });
  if (!parsed) return 0;
  data::jinja::Entries variables;
  if (chat) variables = chat->variables;
  set_entry(variables, Value::text("bos_token"), Value::text("<s>"));
  set_entry(variables, Value::text("add_generation_prompt"), Value::boolean(true));
  const auto rendering = tried("template", [&] { return parsed->render(Value::mapping(variables), limits); });
  if (!rendering) return 0;
  fuzz::require(is_utf8(rendering->text), "a rendered text is UTF-8");
  std::size_t last = 0;
  for (const auto& [begin, end] : rendering->generated) {
    fuzz::require(last <= begin && begin <= end && end <= rendering->text.size(), "generated parts are in order");
    last = end;
  }
  try {
    const auto learned = render_learned(
        *parsed, variables, [](std::string_view text) { return text.ends_with("<s>"); }, limits);
    last = 0;
    for (const auto& [begin, end] : learned.generated) {
      fuzz::require(last <= begin && begin < end && end <= learned.text.size(), "learned parts are in order");
      last = end;
    }
    fuzz::require(last > 0, "a conversation has a learned part");
  } catch (const DataError&) {
  }
  return 0;
}
