// Tables that Apache Arrow reads. The first byte selects the columns, the rest is the file.
#include "io/arrow/tables.hpp"
#include "io/corpus/prepare_files.hpp"
#include "src/base/error.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace trireme;

constexpr std::size_t max_bytes = std::size_t{1}
                                  << 20;  // limit of the lines: a damaged file can claim any number of rows

/// Returns the lines of a range of the file, which may be cut off at `max_bytes`.
std::string read(const prepare::Files& files, const prepare::FileRange& range, std::string_view columns) {
  std::string lines(max_bytes, '\0');
  lines.resize(files.inputs->open(range, columns)->read(lines.data(), lines.size()));
  return lines;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr const char* choices[] = {"*", "text", "meta.text,title", ""};
  const std::string_view columns = choices[data[0] % 4];
  const fuzz::InputFile file("table", fuzz::text_of(data + 1, size - 1));
  const prepare::Files files = io::prepare_files();
  try {
    const prepare::InputFileInfo info = files.inputs->inspect(file.path());
    if (!info.holds_rows) return 0;
    const std::string all = read(files, {file.path(), 0, info.size_bytes}, columns);
    fuzz::require(all.empty() || all.starts_with('{'), "rows are objects");
    if (!info.is_divisible || all.size() == max_bytes) return 0;
    const std::int64_t middle = prepare::line_begin(files, file.path(), info, info.size_bytes / 2);
    fuzz::require(
        read(files, {file.path(), 0, middle}, columns) + read(files, {file.path(), middle, info.size_bytes}, columns) ==
            all,
        "ranges make up the file");
  } catch (const Error&) {
    return 0;
  }
  return 0;
}
