#include "src/base/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <string>

namespace trireme::log {

void initialise(int rank, int world_size) {
  auto logger = std::make_shared<spdlog::logger>("trireme", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  const std::string who = world_size > 1 && rank != 0 ? "[rank " + std::to_string(rank) + "] " : "";
  // On a terminal a progress bar may stand in the line: it is cleared first.
  const std::string clear = isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "";
  logger->set_pattern(clear + "%H:%M:%S " + who + "%^%v%$");
  logger->set_level(rank == 0 ? spdlog::level::info : spdlog::level::warn);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace trireme::log
