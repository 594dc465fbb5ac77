// A line on the terminal for work that takes more than two seconds; nothing where stderr is no terminal.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace trnsim::native {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();  // clears the line
  void step(std::string what);

 private:
  void show();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace trnsim::native
