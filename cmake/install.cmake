# cmake --install gives bin/lowbit, include/lowbit, lib/liblowbit and what find_package(lowbit) and pkg-config read.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lowbit)

install(TARGETS lowbit EXPORT lowbitTargets)
if(TARGET lowbit_program)
  install(TARGETS lowbit_program)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/lowbit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

# A static library hands its own dependencies to whoever links it.
set(config_dependencies)
set(pc_libraries "-llowbit")
if(NOT LOWBIT_SHARED)
  set(config_dependencies "find_dependency(Threads)")
  string(APPEND pc_libraries " -lstdc++ -lm -pthread")
  if(LOWBIT_HAS_CUDA)
    string(APPEND config_dependencies "\nfind_dependency(CUDAToolkit)")
    get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
    string(APPEND pc_libraries " ${cudart} -ldl -lrt")
  endif()
endif()

install(EXPORT lowbitTargets NAMESPACE lowbit:: DESTINATION ${package_folder})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/lowbitConfig.cmake.in ${PROJECT_BINARY_DIR}/lowbitConfig.cmake
  INSTALL_DESTINATION ${package_folder}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lowbitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lowbitConfig.cmake ${PROJECT_BINARY_DIR}/lowbitConfigVersion.cmake DESTINATION ${package_folder})

# The prefix is found from where the file lies, so that an installed tree can be moved.
file(RELATIVE_PATH pc_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file(${PROJECT_SOURCE_DIR}/cmake/lowbit.pc.in ${PROJECT_BINARY_DIR}/lowbit.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lowbit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
