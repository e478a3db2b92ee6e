// Inspects a rank's own host through the kernel's tables, without starting anything, and checks a
// shared folder.
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "io/base/files/create_folder.h"
#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/formats/json_writer.h"
#include "io/base/time/utc_time.h"
#include "io/checkpoint/atomic_file.h"
#include "tools/commands/doctor/doctor.h"
#include "tools/launch/group/rank_exchange.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/launch/machine/machine_info.h"
#include "tools/report/output/json_file.h"

namespace tools {
namespace {

namespace fs = std::filesystem;
std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? value : 0;
}

std::vector<NetworkInterface> interfaces() {
  std::vector<NetworkInterface> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (i->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text,
                sizeof text);
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr, text,
                sizeof text);
    }
    if (*text == '\0') continue;
    const std::string folder = std::string("/sys/class/net/") + i->ifa_name + "/";
    found.push_back({i->ifa_name, text, static_cast<int>(number_in(folder + "mtu")),
                     std::max<std::int64_t>(0, number_in(folder + "speed"))});
  }
  freeifaddrs(list);
  return found;
}

// Reads the driver's own table if CUDA gives no answer: nvidia-smi could hang, and is not installed
// everywhere.
std::vector<std::string> gpus() {
  std::vector<std::string> names;
  std::error_code none;
  for (fs::directory_iterator it("/proc/driver/nvidia/gpus", none), end; !none && it != end;
       it.increment(none)) {
    std::ifstream file(it->path() / "information");
    std::string name = it->path().filename().string();
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("Model:"))
        name = line.substr(std::min(line.find_first_not_of(" \t", 6), line.size())) + " at " + name;
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::int64_t free_shared_memory() {
  struct statvfs space {};
  return statvfs("/dev/shm", &space) == 0
             ? static_cast<std::int64_t>(space.f_bavail * space.f_frsize)
             : 0;
}

// Holds a lock file of rank 0; the others must not get the lock meanwhile.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path)
      : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~LockedFile() {
    if (fd_ >= 0) close(fd_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  bool opened() const { return fd_ >= 0; }
  bool lock() const { return flock(fd_, LOCK_EX | LOCK_NB) == 0; }

 private:
  const int fd_;
};

std::string write_own(const std::string& path) {
  try {
    io::create_folder(fs::path(path).parent_path().string());
  } catch (const io::CannotCreateError& error) {
    return error.what();
  }
  try {
    io::write_file_atomically(path, "engine doctor\n");
    return "";
  } catch (const std::exception& error) {
    return std::string("cannot write: ") + error.what();
  }
}

}  // namespace

std::string check_folder(const std::string& folder, backends::Communicator& communicator) {
  const int rank = communicator.rank();
  std::int64_t nonce = rank == 0 ? base::unix_us() * 1000 + getpid() % 1000 : 0;
  communicator.broadcast(&nonce, sizeof nonce, 0);
  const std::string start = folder + "/doctor-" + std::to_string(nonce) + "-",
                    own = start + std::to_string(rank), locked = start + "lock";
  std::string fault = write_own(own);
  {
    const LockedFile holder(rank == 0 && fault.empty() ? locked : "");
    if (rank == 0 && fault.empty() && !(holder.opened() && holder.lock()))
      fault = std::string("cannot lock a file: ") + base::system_error_text(errno);
    communicator.barrier();  // now all files exist
    for (int r = 0; r < communicator.world_size() && fault.empty(); ++r)
      if (!fs::exists(start + std::to_string(r)))
        fault = "does not see the file of rank " + std::to_string(r) + ": not a shared folder";
    if (rank != 0 && fault.empty() && fs::exists(locked)) {
      const LockedFile mine(locked);
      if (!mine.opened())
        fault = std::string("cannot open rank 0's lock file: ") + base::system_error_text(errno);
      if (mine.opened() && mine.lock())
        fault = "got the lock that rank 0 holds: file locks do not work here";
    }
    communicator.barrier();  // now all ranks have looked
  }
  std::error_code ignored;
  fs::remove(own, ignored);
  if (rank == 0) fs::remove(locked, ignored);
  return fault;
}

HostFacts host_facts(const backends::Group& group) {
  const MachineInfo machine = machine_info();
  HostFacts f;
  f.rank = group.rank();
  f.pid = getpid();
  f.host = machine.host;
  f.host_id = group.peers().at(static_cast<std::size_t>(f.rank)).host_id;
  f.address = group.address();
  f.build = build_text();
  f.cpu = machine.cpu;
  f.kernel = machine.kernel;
  f.cores = machine.cores;
  f.allowed_cores = machine.allowed_cores;
  f.load = machine.load;
  f.limits = machine.limits;
  f.memory_bytes = machine.memory_bytes;
  f.shared_memory_free = free_shared_memory();
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0)
    f.file_limit = static_cast<std::int64_t>(std::min<rlim_t>(files.rlim_cur, 1 << 30));
  f.interfaces = interfaces();
  f.gpus = gpu_lines();
  if (f.gpus.empty()) f.gpus = gpus();
  f.gpu_note = gpu_note();
  for (const backends::BackendInfo& b : backends::list_backends()) {
    if (b.name == "nccl") f.libraries.nccl = b.note;
    if (b.name == "mpi") f.libraries.mpi = b.note;
  }
  return f;
}

std::string to_json(const HostFacts& f) {
  base::JsonWriter json;
  json.begin_object().member("rank", f.rank).member("pid", f.pid);
  json.member("host", f.host).member("host_id", f.host_id);
  json.member("address", f.address).member("build", f.build);
  json.member("cpu", f.cpu).member("kernel", f.kernel).member("cores", f.cores);
  json.member("allowed_cores", f.allowed_cores).member("load", f.load);
  json.member("memory_bytes", f.memory_bytes).member("shared_memory_free", f.shared_memory_free);
  json.member("file_limit", f.file_limit).member("folder_fault", f.folder_fault);
  json.member("gpu_note", f.gpu_note).member("nccl", f.libraries.nccl);
  json.member("mpi", f.libraries.mpi);
  json.key("interfaces").begin_array();
  for (const NetworkInterface& i : f.interfaces) {
    json.begin_object().member("name", i.name).member("address", i.address);
    json.member("mtu", i.mtu).member("speed_mbit", i.speed_mbit).end_object();
  }
  json.end_array().key("gpus").begin_array();
  for (const std::string& gpu : f.gpus) json.value(gpu);
  json.end_array().key("limits").begin_array();
  for (const std::string& limit : f.limits) json.value(limit);
  return json.end_array().end_object().text();
}

HostFacts facts_from_json(const std::string& text) {
  const std::string where = "facts of a rank";
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw io::DataError(where + ": " + error.what());
  }
  HostFacts f;
  f.rank = static_cast<int>(whole_member(json, "rank", 0, 1 << 20, where));
  f.pid = static_cast<int>(whole_member(json, "pid", 0, INT32_MAX, where));
  for (const auto& [key, member_of] : {std::pair{"host", &HostFacts::host},
                                       {"host_id", &HostFacts::host_id},
                                       {"address", &HostFacts::address},
                                       {"build", &HostFacts::build},
                                       {"cpu", &HostFacts::cpu},
                                       {"kernel", &HostFacts::kernel},
                                       {"folder_fault", &HostFacts::folder_fault},
                                       {"gpu_note", &HostFacts::gpu_note}})
    f.*member_of = text_member(json, key, where);
  f.libraries = {.nccl = text_member(json, "nccl", where), .mpi = text_member(json, "mpi", where)};
  f.cores = static_cast<int>(whole_member(json, "cores", 0, 1 << 20, where));
  f.allowed_cores = static_cast<int>(whole_member(json, "allowed_cores", 0, 1 << 20, where));
  f.load = real_member(json, "load", where);
  f.memory_bytes = whole_member(json, "memory_bytes", 0, kUnlimited, where);
  f.shared_memory_free = whole_member(json, "shared_memory_free", 0, kUnlimited, where);
  f.file_limit = whole_member(json, "file_limit", 0, kUnlimited, where);
  for (const Json& i : list_member(json, "interfaces", where))
    f.interfaces.push_back({text_member(i, "name", where), text_member(i, "address", where),
                            static_cast<int>(whole_member(i, "mtu", 0, INT32_MAX, where)),
                            whole_member(i, "speed_mbit", 0, kUnlimited, where)});
  for (const Json& gpu : list_member(json, "gpus", where))
    f.gpus.push_back(gpu.is_string() ? gpu.get<std::string>() : "?");
  for (const Json& limit : list_member(json, "limits", where))
    f.limits.push_back(limit.is_string() ? limit.get<std::string>() : "?");
  return f;
}

}  // namespace tools
