#include "src/base/log.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::log {
namespace {

std::string (*message_filter)(std::string_view) = nullptr;

/// The message of a line, filtered and without control characters: %* in the pattern.
class FilteredMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& line, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string_view message(line.payload.data(), line.payload.size());
    const std::string filtered = visible(message_filter == nullptr ? std::string(message) : message_filter(message));
    out.append(filtered.data(), filtered.data() + filtered.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<FilteredMessage>(); }
};

}  // namespace

void set_message_filter(std::string (*filter)(std::string_view)) { message_filter = filter; }

bool renews_lines() {
  static const std::string chosen = [] {
    const char* value = std::getenv("TRIREME_PROGRESS");
    return std::string(value == nullptr || *value == '\0' ? "auto" : value);
  }();
  TRIREME_CHECK(chosen == "auto" || chosen == "always" || chosen == "never", ConfigError,
                "TRIREME_PROGRESS={} is not auto, always or never: give one of them or unset it", chosen);
  return chosen == "always" || (chosen == "auto" && isatty(STDERR_FILENO) == 1);
}

void initialise(int rank, int world_size) {
  auto logger = std::make_shared<spdlog::logger>("trireme", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  const std::string who = world_size > 1 && rank != 0 ? "[rank " + std::to_string(rank) + "] " : "";
  // Clears a status line, whose cursor is at its start, first.
  const std::string clear = renews_lines() ? "\r\x1b[J" : "";
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<FilteredMessage>('*').set_pattern(clear + "%H:%M:%S " + who + "%^%*%$");
  logger->set_formatter(std::move(formatter));
  logger->set_level(rank == 0 ? spdlog::level::info : spdlog::level::warn);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace trireme::log
