// Each line is a single write(), so that a killed process never leaves half a line.
#include "io/metrics/metrics_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "io/base/io_error.h"
#include "io/base/text_format.h"

namespace io {
namespace {

// The shortest text that reads back to the same double; JSON knows neither NaN nor infinity, which
// become null.
std::string number(double value) { return std::isfinite(value) ? shortest_text(value) : "null"; }

std::string head(const char* event, std::int64_t step, std::int64_t epoch) {
  return std::string("{\"schema\":1,\"event\":\"") + event + "\",\"step\":" + std::to_string(step) +
         ",\"epoch\":" + std::to_string(epoch);
}

std::string members(const MetricsWriter::Numbers& numbers) {
  std::string text;
  for (const auto& [key, value] : numbers) text += std::string(",\"") + key + "\":" + number(value);
  return text;
}

// As a full disk leaves it.
bool ends_within_a_line(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

}  // namespace

struct MetricsWriter::Impl {
  std::string path;
  int fd = -1;

  void write_line(const std::string& object) const { write_text(object + "}\n"); }
  void write_text(const std::string& line) const {
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t n = ::write(fd, line.data() + done, line.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw Error("metrics " + path + ": cannot write: " + std::strerror(errno));
      done += static_cast<std::size_t>(n);
    }
  }
};

MetricsWriter::MetricsWriter(const std::string& path, bool append)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  const bool torn = append && ends_within_a_line(path);
  impl_->fd = ::open(path.c_str(),
                     O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | (append ? 0 : O_TRUNC), 0666);
  if (impl_->fd < 0)
    throw CannotCreateError("metrics " + path + ": cannot create: " + std::strerror(errno));
  if (torn) impl_->write_text("\n");  // the broken line stays, but spoils no further one
}

MetricsWriter::~MetricsWriter() {
  if (impl_->fd >= 0) ::close(impl_->fd);  // every line is written already
}

void MetricsWriter::step(std::int64_t step, std::int64_t epoch, double loss, double lr,
                         double samples_per_s, const Numbers& more) {
  impl_->write_line(head("step", step, epoch) + ",\"loss\":" + number(loss) + ",\"lr\":" +
                    number(lr) + ",\"samples_per_s\":" + number(samples_per_s) + members(more));
}

void MetricsWriter::eval(std::int64_t step, std::int64_t epoch, const std::string& split,
                         double loss, double accuracy, std::int64_t samples, const Numbers& more) {
  impl_->write_line(head("eval", step, epoch) + ",\"split\":" + json_string(split) +
                    ",\"loss\":" + number(loss) + ",\"accuracy\":" + number(accuracy) +
                    ",\"samples\":" + std::to_string(samples) + members(more));
}

void MetricsWriter::desync(std::int64_t step, std::int64_t epoch, std::int64_t last_good,
                           std::int64_t first_bad, std::int64_t compared,
                           const std::vector<std::string>& tensors, const std::vector<int>& ranks,
                           const std::string& action) {
  std::string text = head("desync", step, epoch) + ",\"last_good\":" + std::to_string(last_good) +
                     ",\"first_bad\":" + std::to_string(first_bad) +
                     ",\"compared\":" + std::to_string(compared) + ",\"tensors\":[";
  for (std::size_t i = 0; i < tensors.size(); ++i) text += (i ? "," : "") + json_string(tensors[i]);
  text += "],\"ranks\":[";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i ? "," : "") + std::to_string(ranks[i]);
  impl_->write_line(text + "],\"action\":" + json_string(action));
}

void MetricsWriter::averaging(std::int64_t step, std::int64_t epoch, std::int64_t averagings,
                              std::int64_t bytes_sent, std::optional<double> spread) {
  impl_->write_line(head("averaging", step, epoch) + ",\"averagings\":" +
                    std::to_string(averagings) + ",\"bytes_sent\":" + std::to_string(bytes_sent) +
                    (spread ? ",\"spread\":" + number(*spread) : ""));
}

void MetricsWriter::gpu(std::int64_t step, std::int64_t epoch, int device, const std::string& name,
                        const std::string& bus, const Numbers& values) {
  impl_->write_line(head("gpu", step, epoch) + ",\"device\":" + std::to_string(device) +
                    ",\"name\":" + json_string(name) + ",\"bus\":" + json_string(bus) +
                    members(values));
}

void MetricsWriter::end(std::int64_t step, std::int64_t epoch, double seconds, int exit_code) {
  impl_->write_line(head("end", step, epoch) + ",\"seconds\":" + number(seconds) +
                    ",\"exit\":" + std::to_string(exit_code));
}

}  // namespace io
