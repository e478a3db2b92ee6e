// Writes each event as one record in a single write().
#include "io/metrics/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/time/utc_time.h"
#include "io/metrics/event_messages.h"
#include "io/metrics/tf_record.h"

namespace io {
namespace {

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "host";
  return name;
}

// TensorBoard requires "tfevents" in the name, and reads files in the order of their names: so the
// time comes first, with a fixed width.
std::string file_name(double time, int attempt) {
  const double seconds = std::floor(time);
  char text[64];
  std::snprintf(text, sizeof text, "events.out.tfevents.%010.0f.%06.0f.", seconds,
                std::floor((time - seconds) * 1e6));
  return text + host_name() + "." + std::to_string(getpid()) + "." + std::to_string(attempt);
}

base::Descriptor open_folder(const std::string& folder, NamedBy named_by) {
  if (named_by == NamedBy::kRun) {
    try {
      return open_own_folder(folder);
    } catch (const CannotCreateError& error) {
      throw CannotCreateError(std::string("tensorboard ") + error.what());
    }
  }
  std::error_code fault;
  std::filesystem::create_directories(folder, fault);
  base::Descriptor opened(fault ? -1 : base::retry_on_eintr([&] {
    return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }));
  if (!opened)
    throw CannotCreateError("tensorboard " + folder + ": cannot create: " +
                            (fault ? fault.message() : base::system_error_text(errno)));
  return opened;
}

}  // namespace

struct EventFile::Impl {
  std::string path;
  Clock clock;
  Notice notice;
  base::Descriptor file;
  off_t end = 0;      // of the last whole record
  bool torn = false;  // there may be part of another one behind it
  std::int64_t lost = 0, lost_in_all = 0;
  std::string fault;  // reason of the last lost event
  int messages = 0;   // as in LineFile

  void notify(const std::string& text) {
    if (notice) notice("tensorboard " + path + ": " + text);
    ++messages;
  }
  static std::string missing_text(std::int64_t events) {
    return std::to_string(events) + (events == 1 ? " event is missing" : " events are missing");
  }
  void write(const base::ProtobufMessage& event) {
    const std::string record = tf_record(event.serialized());
    const int error = append(record);
    if (error != 0) {
      torn = true;
      ++lost;
      ++lost_in_all;
      fault = base::system_error_text(error);
      if (messages == 0) notify("cannot write: " + fault + "; training continues without it");
      return;
    }
    end += static_cast<off_t>(record.size());
    if (lost > 0 && messages == 1) notify("written again; " + missing_text(lost));
    lost = 0;
  }

  // Returns 0 or errno. Readers abandon a file at a truncated record, so none is left in it.
  int append(const std::string& record) {
    if (torn && base::retry_on_eintr([&] { return ::ftruncate(file.fd(), end); }) != 0)
      return errno;
    torn = false;
    for (std::size_t done = 0; done < record.size();) {
      const ssize_t n = base::retry_on_eintr([&] {
        return ::pwrite(file.fd(), record.data() + done, record.size() - done,
                        end + static_cast<off_t>(done));
      });
      if (n < 0) {
        const int error = errno;
        // Whether this works is seen again before the next record.
        static_cast<void>(::ftruncate(file.fd(), end) == 0);
        return error;
      }
      done += static_cast<std::size_t>(n);
    }
    return 0;
  }

  void write_values(std::int64_t step, const std::vector<base::ProtobufMessage>& values) {
    if (values.empty()) return;
    base::ProtobufMessage summary;
    for (const base::ProtobufMessage& value : values) summary.message(1, value);
    write(events::event(clock(), step).message(events::kSummary, summary));
  }
};

EventFile::EventFile(const std::string& folder, Clock clock, Notice notice, NamedBy named_by)
    : impl_(std::make_unique<Impl>()) {
  impl_->clock = clock ? std::move(clock) : base::unix_seconds;
  impl_->notice = std::move(notice);
  const base::Descriptor opened_folder = open_folder(folder, named_by);
  const double time = impl_->clock();
  for (int attempt = 0; !impl_->file; ++attempt) {
    const std::string name = file_name(time, attempt);
    impl_->path = (std::filesystem::path(folder) / name).string();
    impl_->file = base::Descriptor(base::retry_on_eintr([&] {
      return ::openat(opened_folder.fd(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                      0666);
    }));
    const int error = errno;
    if (impl_->file || (error == EEXIST && attempt < 100)) continue;
    throw CannotCreateError("tensorboard " + impl_->path +
                            ": cannot create: " + base::system_error_text(error));
  }
  impl_->write(events::event(time, 0).text(events::kFileVersion, "brain.Event:2"));
}

EventFile::~EventFile() = default;  // every record is written already

std::string EventFile::loss() const {
  if (impl_->lost_in_all == 0) return "";
  return "tensorboard " + impl_->path + ": " + Impl::missing_text(impl_->lost_in_all) + ": " +
         impl_->fault;
}

const std::string& EventFile::path() const { return impl_->path; }

void EventFile::begin(std::int64_t step) {
  constexpr int kStatus = 1, kStart = 1;  // SessionLog: forget this step and those after it
  impl_->write(events::event(impl_->clock(), step + 1)
                   .message(events::kSessionLog, base::ProtobufMessage().integer(kStatus, kStart)));
}

void EventFile::scalars(std::int64_t step, const Scalars& values) {
  std::vector<base::ProtobufMessage> messages;
  for (const auto& [tag, value] : values) messages.push_back(events::scalar_value(tag, value));
  impl_->write_values(step, messages);
}

void EventFile::images(std::int64_t step, const std::vector<Image>& images) {
  std::vector<base::ProtobufMessage> messages;
  messages.reserve(images.size());
  for (const Image& image : images) messages.push_back(events::image_value(image));
  impl_->write_values(step, messages);
}

void EventFile::text(std::int64_t step, const std::string& tag, const std::string& markdown) {
  impl_->write_values(step, {events::text_value(tag, markdown)});
}

void EventFile::histograms(std::int64_t step, const Histograms& values) {
  std::vector<base::ProtobufMessage> messages;
  for (const auto& [tag, histogram] : values)
    if (histogram.count > 0) messages.push_back(events::histogram_value(tag, histogram));
  impl_->write_values(step, messages);
}

void EventFile::hyperparameters(std::int64_t step, const std::string& run,
                                const std::vector<Hyperparameter>& options,
                                const std::vector<std::string>& metrics) {
  const double time = impl_->clock();
  impl_->write_values(step, {events::experiment_value(time, options, metrics),
                             events::session_start_value(time, run, options)});
}

void EventFile::end(std::int64_t step, bool success) {
  impl_->write_values(step, {events::session_end_value(impl_->clock(), success)});
}

}  // namespace io
