# The shaders of the Vulkan device as SPIR-V inside C++: for each native/src/device/vulkan/shaders/NAME.comp a line of
# vulkan_shader_list.inc and an array of vulkan_shader_code.inc, both in VULKAN_SHADER_INCLUDE. The device is left out
# where Vulkan's headers or glslc are missing. Sets VLLM_HAS_VULKAN.
#
# Where there is spirv-cross the same SPIR-V becomes NAME.metal in METAL_SHADERS, a kernel NAME whose buffer 0 is the
# struct of parameters.h and whose function constants are the specialization constants. Addresses in that struct need
# Metal 3. Kernels with instructions that it does not know (*_dot) are left out.
option(VLLM_VULKAN "Build the Vulkan device where its tools are there" ON)
set(VLLM_HAS_VULKAN OFF)
if(NOT VLLM_VULKAN)
  return()
endif()
find_program(GLSLC glslc)
find_program(SPIRV_VAL spirv-val)
find_program(SPIRV_CROSS spirv-cross)
find_path(VULKAN_INCLUDE vulkan/vulkan.h)
if(NOT GLSLC OR NOT VULKAN_INCLUDE)
  message(NOTICE "Built without the Vulkan device: glslc or vulkan/vulkan.h is missing (packages glslc, libvulkan-dev)")
  return()
endif()
set(VLLM_HAS_VULKAN ON)
set(VULKAN_SHADER_INCLUDE ${CMAKE_BINARY_DIR}/vulkan_shaders)
set(VULKAN_SHADER_FILES "")
set(METAL_SHADERS ${CMAKE_BINARY_DIR}/metal_shaders)
set(metal_files "")
set(shader_list "")
set(shader_code "")
# Named by us: the list that glslc writes cannot be read where the path has a space.
file(GLOB included CONFIGURE_DEPENDS native/src/device/vulkan/shaders/*.glsl native/src/device/vulkan/shaders/*.h)
file(GLOB shaders CONFIGURE_DEPENDS native/src/device/vulkan/shaders/*.comp)
foreach(shader IN LISTS shaders)
  get_filename_component(name ${shader} NAME_WE)
  set(out ${VULKAN_SHADER_INCLUDE}/${name})
  # Optimized by the driver, which knows the specialization constants; glslc would unroll the loops of every format and
  # drop the names that the translation to Metal keeps.
  set(compile ${GLSLC} -O0 --target-env=vulkan1.2 ${shader})
  set(validate "")
  if(SPIRV_VAL)
    set(validate COMMAND ${SPIRV_VAL} --target-env vulkan1.2 ${out}.spv)
  endif()
  add_custom_command(
    OUTPUT ${out}.spv ${out}.inc
    COMMAND ${compile} -o ${out}.spv
    ${validate}
    COMMAND ${compile} -mfmt=c -o ${out}.inc
    DEPENDS ${shader} ${included}
    COMMENT "Compiling the shader ${name}"
    VERBATIM)
  list(APPEND VULKAN_SHADER_FILES ${out}.inc)
  if(SPIRV_CROSS AND NOT name MATCHES "_dot$")
    set(metal ${METAL_SHADERS}/${name}.metal)
    add_custom_command(
      OUTPUT ${metal}
      COMMAND ${SPIRV_CROSS} --msl --msl-version 30000 --rename-entry-point main ${name} comp --output ${metal} ${out}.spv
      DEPENDS ${out}.spv
      COMMENT "Translating the shader ${name} to Metal"
      VERBATIM)
    list(APPEND metal_files ${metal})
  endif()
  string(APPEND shader_list "VLLM_SHADER(${name})\n")
  string(APPEND shader_code "constexpr uint32_t k_${name}[] =\n#include \"${name}.inc\"\n    ;\n")
endforeach()
file(MAKE_DIRECTORY ${VULKAN_SHADER_INCLUDE} ${METAL_SHADERS})
if(SPIRV_CROSS)
  add_custom_target(metal_shaders ALL DEPENDS ${metal_files})
endif()
file(CONFIGURE OUTPUT ${VULKAN_SHADER_INCLUDE}/vulkan_shader_list.inc CONTENT "${shader_list}" @ONLY)
file(CONFIGURE OUTPUT ${VULKAN_SHADER_INCLUDE}/vulkan_shader_code.inc CONTENT "${shader_code}" @ONLY)
